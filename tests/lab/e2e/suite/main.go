// Command suite runs Kubernetes' own end-to-end tests of Services and of cloud providers on a cluster of localcloud's machines.
//
// The flags are those of Kubernetes' e2e.test. More are -localcloud-url and -localcloud-token-file,
// which the provider "localcloud" needs (provider.go), and -pass-as: the name of the provider that
// the tests see, for those that run on a few named clouds only.
package main

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"k8s.io/kubernetes/test/e2e"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	"k8s.io/kubernetes/test/e2e/framework/testfiles"
	manifests "k8s.io/kubernetes/test/e2e/testing-manifests"
	"k8s.io/kubernetes/test/fixtures"

	_ "k8s.io/kubernetes/test/e2e/feature"
	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"

	_ "k8s.io/kubernetes/test/e2e/cloud"
	_ "k8s.io/kubernetes/test/e2e/common/network"
	_ "k8s.io/kubernetes/test/e2e/network"
)

func main() {
	testing.Init()
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.StringVar(&cloudURL, "localcloud-url", "", "address of the localcloud's API")
	flag.StringVar(&cloudTokenFile, "localcloud-token-file", "", "file with the token of the localcloud's API")
	passAs := flag.String("pass-as", "", "name of the provider that the tests see instead of -provider")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "unknown arguments: %q\n", flag.Args())
		os.Exit(2)
	}
	testfiles.AddFileSource(manifests.GetE2ETestingManifestsFS())
	testfiles.AddFileSource(fixtures.GetTestFixturesFS())
	framework.AfterReadingAllFlags(&framework.TestContext)
	if *passAs != "" {
		framework.TestContext.Provider = *passAs
	}
	everything := func(string, string) (bool, error) { return true, nil }
	testing.Main(everything, []testing.InternalTest{{Name: "E2E", F: e2e.RunE2ETests}}, nil, nil)
}
