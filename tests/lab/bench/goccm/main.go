// Command goccm is the Go reference to measure against: upstream's cloud-controller-manager, built from the public
// modules, over an in-memory cloud with a set latency per call. Its cloud answers at once for any node name, and writes
// down every call as `ccm.py` does for ours.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"
	"k8s.io/component-base/cli"
	cliflag "k8s.io/component-base/cli/flag"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	"k8s.io/klog/v2"
)

const name = "bench"

// settings is the cloud config file: how long each call takes, which nodes are gone, and the file for the journal. With a
// server the cloud is that one, and knows us by the caller's name.
type settings struct {
	LatencyMs  int    `json:"latencyMs"`
	GonePrefix string `json:"gonePrefix"`
	Journal    string `json:"journal"`
	Server     string `json:"server"`
	Caller     string `json:"caller"`
}

// entry is one line of the journal: a call that ended, in Unix seconds.
type entry struct {
	Method string   `json:"method"`
	Began  float64  `json:"began"`
	Ended  float64  `json:"ended"`
	Keys   []string `json:"keys"`
	Gone   []string `json:"gone,omitempty"`
	Nodes  int      `json:"nodes,omitempty"`
}

type cloud struct {
	settings
	journal   *os.File
	mu        sync.Mutex
	balancers map[string]*v1.LoadBalancerStatus
	routes    map[string]*cloudprovider.Route
}

func init() {
	cloudprovider.RegisterCloudProvider(name, func(file io.Reader) (cloudprovider.Interface, error) {
		c := &cloud{balancers: map[string]*v1.LoadBalancerStatus{}, routes: map[string]*cloudprovider.Route{}}
		if file == nil {
			return c, nil
		}
		if err := json.NewDecoder(file).Decode(&c.settings); err != nil {
			return c, err
		}
		if c.Server != "" {
			return &remote{cloud: cloud{settings: c.settings}}, nil
		}
		if c.Journal == "" {
			return c, nil
		}
		journal, err := os.OpenFile(c.Journal, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		c.journal = journal
		return c, err
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

func (c *cloud) call(ctx context.Context) error {
	if c.LatencyMs == 0 {
		return nil
	}
	select {
	case <-time.After(time.Duration(c.LatencyMs) * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// note writes a call down when it ends; one write a line, so that threads cannot mix.
func (c *cloud) note(method string, began time.Time, nodes int, key string, gone ...string) {
	if c.journal == nil {
		return
	}
	line, err := json.Marshal(entry{method, seconds(began), seconds(time.Now()), []string{key}, gone, nodes})
	if err == nil {
		_, err = c.journal.Write(append(line, '\n'))
	}
	if err != nil {
		klog.Fatalf("journal: %v", err)
	}
}

func seconds(t time.Time) float64 {
	return float64(t.UnixMicro()) / 1e6
}

func serviceKey(service *v1.Service) string {
	return service.Namespace + "/" + service.Name
}

func (c *cloud) gone(node *v1.Node) bool {
	return c.GonePrefix != "" && strings.HasPrefix(node.Name, c.GonePrefix)
}

func (c *cloud) InstanceExists(ctx context.Context, node *v1.Node) (bool, error) {
	began := time.Now()
	if err := c.call(ctx); err != nil {
		return false, err
	}
	if c.gone(node) {
		c.note("instance_exists", began, 0, node.Name, node.Name)
		return false, nil
	}
	c.note("instance_exists", began, 0, node.Name)
	return true, nil
}

func (c *cloud) InstanceShutdown(ctx context.Context, node *v1.Node) (bool, error) {
	defer c.note("instance_shutdown", time.Now(), 0, node.Name)
	return false, c.call(ctx)
}

func (c *cloud) InstanceMetadata(ctx context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	defer c.note("instance_metadata", time.Now(), 0, node.Name)
	if err := c.call(ctx); err != nil {
		return nil, err
	}
	hash := fnv.New32a()
	hash.Write([]byte(node.Name))
	n := hash.Sum32()
	return &cloudprovider.InstanceMetadata{
		ProviderID:   name + "://" + node.Name,
		InstanceType: "standard-4",
		NodeAddresses: []v1.NodeAddress{
			{Type: v1.NodeInternalIP, Address: fmt.Sprintf("10.%d.%d.%d", n>>16&255, n>>8&255, n&255)},
			{Type: v1.NodeHostName, Address: node.Name},
		},
		Zone:   "zone-a",
		Region: "region-1",
	}, nil
}

func (c *cloud) GetLoadBalancerName(_ context.Context, _ string, service *v1.Service) string {
	return cloudprovider.DefaultLoadBalancerName(service)
}

func (c *cloud) GetLoadBalancer(ctx context.Context, cluster string, service *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	defer c.note("get_load_balancer", time.Now(), 0, serviceKey(service))
	err := c.call(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	status, ok := c.balancers[c.GetLoadBalancerName(ctx, cluster, service)]
	return status, ok, err
}

func (c *cloud) EnsureLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
	defer c.note("ensure_load_balancer", time.Now(), len(nodes), serviceKey(service))
	if err := c.call(ctx); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := c.GetLoadBalancerName(ctx, cluster, service)
	if _, ok := c.balancers[key]; !ok {
		n := len(c.balancers)
		c.balancers[key] = &v1.LoadBalancerStatus{
			Ingress: []v1.LoadBalancerIngress{{IP: fmt.Sprintf("192.0.%d.%d", n>>8&255, n&255)}},
		}
	}
	return c.balancers[key], nil
}

func (c *cloud) UpdateLoadBalancer(ctx context.Context, _ string, service *v1.Service, nodes []*v1.Node) error {
	defer c.note("update_load_balancer", time.Now(), len(nodes), serviceKey(service))
	return c.call(ctx)
}

func (c *cloud) EnsureLoadBalancerDeleted(ctx context.Context, cluster string, service *v1.Service) error {
	defer c.note("ensure_load_balancer_deleted", time.Now(), 0, serviceKey(service))
	if err := c.call(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.balancers, c.GetLoadBalancerName(ctx, cluster, service))
	return nil
}

func (c *cloud) ListRoutes(ctx context.Context, cluster string) ([]*cloudprovider.Route, error) {
	defer c.note("list_routes", time.Now(), 0, cluster)
	if err := c.call(ctx); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	routes := make([]*cloudprovider.Route, 0, len(c.routes))
	for _, route := range c.routes {
		routes = append(routes, route)
	}
	return routes, nil
}

func (c *cloud) CreateRoute(ctx context.Context, _ string, hint string, route *cloudprovider.Route) error {
	defer c.note("create_route", time.Now(), 0, route.DestinationCIDR)
	if err := c.call(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	stored := *route
	stored.Name = hint + "-" + route.DestinationCIDR
	c.routes[route.DestinationCIDR] = &stored
	return nil
}

func (c *cloud) DeleteRoute(ctx context.Context, _ string, route *cloudprovider.Route) error {
	defer c.note("delete_route", time.Now(), 0, route.DestinationCIDR)
	if err := c.call(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.routes, route.DestinationCIDR)
	return nil
}

func build(config *config.CompletedConfig) cloudprovider.Interface {
	chosen := config.ComponentConfig.KubeCloudShared.CloudProvider
	built, err := cloudprovider.InitCloudProvider(chosen.Name, chosen.CloudConfigFile)
	if err != nil || built == nil {
		klog.Fatalf("cloud provider %q: %v", chosen.Name, err)
	}
	return built
}

func main() {
	opts, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		klog.Fatal(err)
	}
	command := app.NewCloudControllerManagerCommand(
		opts, build, app.DefaultInitFuncConstructors, names.CCMControllerAliases(), cliflag.NamedFlagSets{}, wait.NeverStop)
	if len(os.Args) == 2 && os.Args[1] == "describe" {
		if err := describe(command); err != nil {
			klog.Fatal(err)
		}
		return
	}
	os.Exit(cli.Run(command))
}
