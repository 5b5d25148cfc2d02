// Command goccm is upstream's cloud-controller-manager over the local cloud: what a cluster has before it comes to
// ours. `make trials TRIALS=migration` runs it.
package main

import (
	"os"

	"k8s.io/apimachinery/pkg/util/wait"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"
	"k8s.io/component-base/cli"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/klog/v2"
)

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
	os.Exit(cli.Run(app.NewCloudControllerManagerCommand(
		opts, build, app.DefaultInitFuncConstructors, names.CCMControllerAliases(), cliflag.NamedFlagSets{}, wait.NeverStop)))
}
