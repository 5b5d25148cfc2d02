package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"
)

// remote is the cloud of another process, shared with other managers: every call is one request, which carries the
// caller's name. tests/support/failover/cloudserver.py answers.
type remote struct {
	cloud
	client http.Client
}

// nodeKey is what the server wants to know of a node.
type nodeKey struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		ProviderID string `json:"providerID"`
	} `json:"spec"`
}

type remoteRoute struct {
	Name      string `json:"name"`
	Target    string `json:"target"`
	CIDR      string `json:"cidr"`
	Blackhole bool   `json:"blackhole"`
}

type remoteCall struct {
	Caller  string       `json:"caller"`
	Cluster string       `json:"cluster"`
	Service *v1.Service  `json:"service,omitempty"`
	Nodes   []nodeKey    `json:"nodes,omitempty"`
	Hint    string       `json:"hint,omitempty"`
	Route   *remoteRoute `json:"route,omitempty"`
}

func (r *remote) ask(ctx context.Context, method string, call remoteCall, answer any) error {
	call.Caller = r.Caller
	body, err := json.Marshal(call)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.Server+"/"+method, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := r.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusNotFound {
		return cloudprovider.InstanceNotFound
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: status %d", method, response.StatusCode)
	}
	return json.NewDecoder(response.Body).Decode(answer)
}

func keys(nodes ...*v1.Node) []nodeKey {
	found := make([]nodeKey, len(nodes))
	for i, node := range nodes {
		found[i].Metadata.Name, found[i].Spec.ProviderID = node.Name, node.Spec.ProviderID
	}
	return found
}

func (r *remote) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return r, true }
func (r *remote) InstancesV2() (cloudprovider.InstancesV2, bool)   { return r, true }
func (r *remote) Routes() (cloudprovider.Routes, bool)             { return r, true }

func (r *remote) InstanceExists(ctx context.Context, node *v1.Node) (found bool, err error) {
	err = r.ask(ctx, "instance_exists", remoteCall{Nodes: keys(node)}, &found)
	return
}

func (r *remote) InstanceShutdown(ctx context.Context, node *v1.Node) (found bool, err error) {
	err = r.ask(ctx, "instance_shutdown", remoteCall{Nodes: keys(node)}, &found)
	return
}

func (r *remote) InstanceMetadata(ctx context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	var found struct {
		ProviderID string           `json:"providerID"`
		Type       string           `json:"type"`
		Zone       string           `json:"zone"`
		Region     string           `json:"region"`
		Addresses  []v1.NodeAddress `json:"addresses"`
	}
	if err := r.ask(ctx, "instance_metadata", remoteCall{Nodes: keys(node)}, &found); err != nil {
		return nil, err
	}
	return &cloudprovider.InstanceMetadata{
		ProviderID: found.ProviderID, InstanceType: found.Type, Zone: found.Zone, Region: found.Region,
		NodeAddresses: found.Addresses,
	}, nil
}

func balancer(addresses []string) *v1.LoadBalancerStatus {
	status := &v1.LoadBalancerStatus{}
	for _, address := range addresses {
		status.Ingress = append(status.Ingress, v1.LoadBalancerIngress{IP: address})
	}
	return status
}

func (r *remote) GetLoadBalancer(ctx context.Context, cluster string, service *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	var found []string
	err := r.ask(ctx, "get_load_balancer", remoteCall{Cluster: cluster, Service: service}, &found)
	return balancer(found), found != nil, err
}

func (r *remote) EnsureLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
	var found []string
	err := r.ask(ctx, "ensure_load_balancer", remoteCall{Cluster: cluster, Service: service, Nodes: keys(nodes...)}, &found)
	return balancer(found), err
}

func (r *remote) UpdateLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) error {
	var nothing any
	return r.ask(ctx, "update_load_balancer", remoteCall{Cluster: cluster, Service: service, Nodes: keys(nodes...)}, &nothing)
}

func (r *remote) EnsureLoadBalancerDeleted(ctx context.Context, cluster string, service *v1.Service) error {
	var nothing any
	return r.ask(ctx, "ensure_load_balancer_deleted", remoteCall{Cluster: cluster, Service: service}, &nothing)
}

func (r *remote) ListRoutes(ctx context.Context, cluster string) ([]*cloudprovider.Route, error) {
	var found []remoteRoute
	err := r.ask(ctx, "list_routes", remoteCall{Cluster: cluster}, &found)
	routes := make([]*cloudprovider.Route, len(found))
	for i, one := range found {
		routes[i] = &cloudprovider.Route{
			Name: one.Name, TargetNode: types.NodeName(one.Target), DestinationCIDR: one.CIDR, Blackhole: one.Blackhole,
		}
	}
	return routes, err
}

func (r *remote) CreateRoute(ctx context.Context, cluster string, hint string, route *cloudprovider.Route) error {
	var nothing any
	return r.ask(ctx, "create_route", remoteCall{Cluster: cluster, Hint: hint, Route: rule(route)}, &nothing)
}

func (r *remote) DeleteRoute(ctx context.Context, cluster string, route *cloudprovider.Route) error {
	var nothing any
	return r.ask(ctx, "delete_route", remoteCall{Cluster: cluster, Route: rule(route)}, &nothing)
}

func rule(route *cloudprovider.Route) *remoteRoute {
	return &remoteRoute{route.Name, string(route.TargetNode), route.DestinationCIDR, route.Blackhole}
}
