package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/kubernetes/test/e2e/framework"
)

var cloudURL, cloudTokenFile string

func init() {
	framework.RegisterProvider("localcloud", newProvider)
}

// provider does what the tests ask of a cloud by localcloud's API; all else is refused by NullProvider.
type provider struct {
	framework.NullProvider
	url, token string
	client     http.Client
}

func newProvider() (framework.ProviderInterface, error) {
	if cloudURL == "" || cloudTokenFile == "" {
		return nil, fmt.Errorf("the provider localcloud needs -localcloud-url and -localcloud-token-file")
	}
	token, err := os.ReadFile(cloudTokenFile)
	if err != nil {
		return nil, err
	}
	return &provider{
		url:    strings.TrimSuffix(cloudURL, "/"),
		token:  strings.TrimSpace(string(token)),
		client: http.Client{Timeout: 30 * time.Second},
	}, nil
}

// DeleteNode deletes the machine of this Node: the last part of its provider ID is the machine's ID.
func (p *provider) DeleteNode(node *v1.Node) error {
	id := path.Base(node.Spec.ProviderID)
	if node.Spec.ProviderID == "" {
		return fmt.Errorf("node %s has no provider ID", node.Name)
	}
	_, err := p.call(context.Background(), http.MethodDelete, "/v1/machines/"+id)
	return err
}

// EnsureLoadBalancerResourcesDeleted waits until no load balancer of the cloud has this address.
func (p *provider) EnsureLoadBalancerResourcesDeleted(ctx context.Context, ip, _ string) error {
	var name string
	err := wait.PollUntilContextTimeout(ctx, time.Second, time.Minute, true, func(ctx context.Context) (bool, error) {
		body, err := p.call(ctx, http.MethodGet, "/v1/loadbalancers")
		if err != nil {
			return false, err
		}
		var answer struct {
			LoadBalancers []struct{ Name, Address string } `json:"loadbalancers"`
		}
		if err := json.Unmarshal(body, &answer); err != nil {
			return false, err
		}
		name = ""
		for _, balancer := range answer.LoadBalancers {
			if balancer.Address == ip {
				name = balancer.Name
			}
		}
		return name == "", nil
	})
	if err != nil && name != "" {
		return fmt.Errorf("load balancer %s still has the address %s: %w", name, ip, err)
	}
	return err
}

func (p *provider) call(ctx context.Context, method, where string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, p.url+where, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+p.token)
	answer, err := p.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode >= 300 {
		return nil, fmt.Errorf("%s %s: %s: %s", method, where, answer.Status, body)
	}
	return body, nil
}
