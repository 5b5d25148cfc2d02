package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"sort"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/api"
	servicehelpers "k8s.io/cloud-provider/service/helpers"
)

const (
	name         = "localcloud"
	labelService = "kubernetes.io/service"
	labelUID     = "kubernetes.io/service-uid"
)

// cloud is the same cloud as examples/localcloud drives, with the same provider IDs, names, labels and owners.
type cloud struct {
	URL    string `json:"url"`
	Token  string `json:"token"`
	client http.Client
}

type machine struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	State     string `json:"state"`
	Type      string `json:"type"`
	Zone      string `json:"zone"`
	Region    string `json:"region"`
	Addresses []struct {
		Type    string `json:"type"`
		Address string `json:"address"`
	} `json:"addresses"`
}

type rule struct {
	Name        string `json:"name,omitempty"`
	Owner       string `json:"owner"`
	Destination string `json:"destination"`
	Machine     string `json:"machine"`
}

type port struct {
	Protocol   string `json:"protocol"`
	Port       int32  `json:"port"`
	TargetPort int32  `json:"targetPort"`
}

type health struct {
	Port int32  `json:"port"`
	Path string `json:"path"`
}

type balancer struct {
	Owner           string            `json:"owner"`
	Labels          map[string]string `json:"labels"`
	Mode            string            `json:"mode"`
	Ports           []port            `json:"ports"`
	Targets         []string          `json:"targets"`
	SourceRanges    []string          `json:"sourceRanges"`
	Affinity        string            `json:"affinity"`
	AffinitySeconds int32             `json:"affinitySeconds"`
	Health          *health           `json:"health"`
}

type found struct {
	balancer
	Address string `json:"address"`
}

func init() {
	cloudprovider.RegisterCloudProvider(name, func(file io.Reader) (cloudprovider.Interface, error) {
		c := &cloud{client: http.Client{Timeout: 30 * time.Second}}
		return c, json.NewDecoder(file).Decode(c)
	})
}

func (c *cloud) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {}
func (c *cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool)                  { return c, true }
func (c *cloud) Instances() (cloudprovider.Instances, bool)                        { return nil, false }
func (c *cloud) InstancesV2() (cloudprovider.InstancesV2, bool)                    { return c, true }
func (c *cloud) Zones() (cloudprovider.Zones, bool)                                { return nil, false }
func (c *cloud) Clusters() (cloudprovider.Clusters, bool)                          { return nil, false }
func (c *cloud) Routes() (cloudprovider.Routes, bool)                              { return c, true }
func (c *cloud) ProviderName() string                                              { return name }
func (c *cloud) HasClusterID() bool                                                { return true }

// ask sends one request; false is the cloud's 404.
func (c *cloud) ask(ctx context.Context, method, path string, body, answer any) (bool, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return false, err
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.URL+"/v1/"+path, content)
	if err != nil {
		return false, err
	}
	request.Header.Set("Authorization", "Bearer "+c.Token)
	request.Header.Set("Content-Type", "application/json")
	response, err := c.client.Do(request)
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusNotFound {
		return false, nil
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		text, _ := io.ReadAll(response.Body)
		return false, fmt.Errorf("%s %s: %s: %s", method, path, response.Status, text)
	}
	if answer == nil {
		return true, nil
	}
	return true, json.NewDecoder(response.Body).Decode(answer)
}

func (c *cloud) machines(ctx context.Context, query string) ([]machine, error) {
	var answer struct {
		Machines []machine `json:"machines"`
	}
	_, err := c.ask(ctx, http.MethodGet, "machines"+query, nil, &answer)
	return answer.Machines, err
}

// find returns the node's machine, by its ID, or by its name while the node has none; nil where it is gone.
func (c *cloud) find(ctx context.Context, node *v1.Node) (*machine, error) {
	query := "?name=" + url.QueryEscape(node.Name)
	if id := machineID(node); id != "" {
		query = "?id=" + url.QueryEscape(id)
	}
	listed, err := c.machines(ctx, query)
	if err != nil || len(listed) == 0 {
		return nil, err
	}
	return &listed[0], nil
}

func machineID(node *v1.Node) string {
	return strings.TrimLeft(strings.TrimPrefix(node.Spec.ProviderID, name+"://"), "/")
}

func (c *cloud) InstanceExists(ctx context.Context, node *v1.Node) (bool, error) {
	one, err := c.find(ctx, node)
	return one != nil, err
}

func (c *cloud) InstanceShutdown(ctx context.Context, node *v1.Node) (bool, error) {
	one, err := c.find(ctx, node)
	if err == nil && one == nil {
		err = cloudprovider.InstanceNotFound
	}
	return err == nil && one.State == "stopped", err
}

func (c *cloud) InstanceMetadata(ctx context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	one, err := c.find(ctx, node)
	if err != nil {
		return nil, err
	}
	if one == nil {
		return nil, cloudprovider.InstanceNotFound
	}
	metadata := &cloudprovider.InstanceMetadata{
		ProviderID: name + "://" + one.ID, InstanceType: one.Type, Zone: one.Zone, Region: one.Region,
	}
	for _, address := range one.Addresses {
		metadata.NodeAddresses = append(
			metadata.NodeAddresses, v1.NodeAddress{Type: v1.NodeAddressType(address.Type), Address: address.Address})
	}
	return metadata, nil
}

func (c *cloud) GetLoadBalancerName(_ context.Context, _ string, service *v1.Service) string {
	return cloudprovider.DefaultLoadBalancerName(service)
}

func status(one *found) *v1.LoadBalancerStatus {
	mode := v1.LoadBalancerIPModeVIP
	if one.Mode == "proxy" {
		mode = v1.LoadBalancerIPModeProxy
	}
	return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: one.Address, IPMode: &mode}}}
}

// balancer returns the Service's load balancer, nil where there is none; another's is an error.
func (c *cloud) balancer(ctx context.Context, cluster string, service *v1.Service) (*found, string, error) {
	path := "loadbalancers/" + c.GetLoadBalancerName(ctx, cluster, service)
	var one found
	there, err := c.ask(ctx, http.MethodGet, path, nil, &one)
	if err != nil || !there {
		return nil, path, err
	}
	if one.Owner != cluster || one.Labels[labelUID] != string(service.UID) {
		return nil, path, fmt.Errorf("%s was not made for this Service", path)
	}
	return &one, path, nil
}

func (c *cloud) GetLoadBalancer(ctx context.Context, cluster string, service *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	one, _, err := c.balancer(ctx, cluster, service)
	if one == nil {
		return nil, false, err
	}
	return status(one), true, nil
}

func plan(cluster string, service *v1.Service, nodes []*v1.Node) balancer {
	wanted := balancer{
		Owner: cluster, Mode: "nat", Affinity: "none", AffinitySeconds: 10800, Targets: targets(nodes),
		Labels: map[string]string{labelService: service.Namespace + "/" + service.Name, labelUID: string(service.UID)},
	}
	wanted.SourceRanges = append([]string{}, service.Spec.LoadBalancerSourceRanges...)
	for _, one := range service.Spec.Ports {
		wanted.Ports = append(wanted.Ports, port{string(one.Protocol), one.Port, one.NodePort})
	}
	if service.Spec.SessionAffinity == v1.ServiceAffinityClientIP {
		wanted.Affinity = "clientIP"
		if config := service.Spec.SessionAffinityConfig; config != nil && config.ClientIP != nil {
			wanted.AffinitySeconds = *config.ClientIP.TimeoutSeconds
		}
	}
	if path, number := servicehelpers.GetServiceHealthCheckPathPort(service); number != 0 {
		wanted.Health = &health{number, path}
	}
	return wanted
}

func targets(nodes []*v1.Node) []string {
	ids := []string{}
	for _, node := range nodes {
		if strings.HasPrefix(node.Spec.ProviderID, name+"://") {
			ids = append(ids, machineID(node))
		}
	}
	sort.Strings(ids)
	return ids
}

func (c *cloud) EnsureLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
	one, path, err := c.balancer(ctx, cluster, service)
	if err != nil {
		return nil, err
	}
	wanted := plan(cluster, service, nodes)
	if one == nil || !reflect.DeepEqual(one.balancer, wanted) {
		one = &found{}
		if there, err := c.ask(ctx, http.MethodPut, path, wanted, one); err != nil || !there {
			return nil, fmt.Errorf("%s was not built: %w", path, err)
		}
	}
	if one.Address == "" {
		return nil, api.NewRetryError(path+" has no address yet", 2*time.Second)
	}
	return status(one), nil
}

func (c *cloud) UpdateLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) error {
	_, err := c.EnsureLoadBalancer(ctx, cluster, service, nodes)
	return err
}

func (c *cloud) EnsureLoadBalancerDeleted(ctx context.Context, cluster string, service *v1.Service) error {
	one, path, err := c.balancer(ctx, cluster, service)
	if err != nil || one == nil {
		return err
	}
	_, err = c.ask(ctx, http.MethodDelete, path+"?owner="+url.QueryEscape(cluster), nil, nil)
	return err
}

func (c *cloud) ListRoutes(ctx context.Context, cluster string) ([]*cloudprovider.Route, error) {
	var answer struct {
		Routes []rule `json:"routes"`
	}
	// The routes first: a machine that is made between the two requests is then in the second.
	if _, err := c.ask(ctx, http.MethodGet, "routes?owner="+url.QueryEscape(cluster), nil, &answer); err != nil {
		return nil, err
	}
	listed, err := c.machines(ctx, "")
	if err != nil {
		return nil, err
	}
	names := map[string]string{}
	for _, one := range listed {
		names[one.ID] = one.Name
	}
	routes := make([]*cloudprovider.Route, 0, len(answer.Routes))
	for _, one := range answer.Routes {
		target, there := names[one.Machine]
		routes = append(routes, &cloudprovider.Route{
			Name: one.Name, TargetNode: types.NodeName(target), DestinationCIDR: one.Destination, Blackhole: !there,
		})
	}
	return routes, nil
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9.]`)

func (c *cloud) CreateRoute(ctx context.Context, cluster string, _ string, route *cloudprovider.Route) error {
	listed, err := c.machines(ctx, "?name="+url.QueryEscape(string(route.TargetNode)))
	if err != nil {
		return err
	}
	if len(listed) == 0 {
		return cloudprovider.InstanceNotFound
	}
	var parts []string
	for _, part := range []string{cluster, route.DestinationCIDR, listed[0].ID} {
		parts = append(parts, notInNames.ReplaceAllString(part, "-"))
	}
	body := rule{Owner: cluster, Destination: route.DestinationCIDR, Machine: listed[0].ID}
	_, err = c.ask(ctx, http.MethodPut, "routes/"+strings.Join(parts, "-"), body, nil)
	return err
}

func (c *cloud) DeleteRoute(ctx context.Context, cluster string, route *cloudprovider.Route) error {
	_, err := c.ask(ctx, http.MethodDelete, "routes/"+url.PathEscape(route.Name)+"?owner="+url.QueryEscape(cluster), nil, nil)
	return err
}
