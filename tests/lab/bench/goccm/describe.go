package main

import (
	"encoding/json"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
)

type flag struct {
	Name       string
	Type       string
	Default    string
	Deprecated string
}

type gate struct {
	Name    string
	Stage   string
	Default bool
	Locked  bool
}

// describe prints every flag and every feature gate of the program as JSON, those that --help hides too: for the test
// that compares our tables with them.
func describe(command *cobra.Command) error {
	var found struct {
		Flags []flag
		Gates []gate
	}
	command.InitDefaultHelpFlag()
	command.Flags().VisitAll(func(f *pflag.Flag) {
		found.Flags = append(found.Flags, flag{f.Name, f.Value.Type(), f.DefValue, f.Deprecated})
	})
	for name, spec := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		stage := string(spec.PreRelease)
		if spec.PreRelease == featuregate.GA {
			stage = "GA"
		}
		found.Gates = append(found.Gates, gate{string(name), stage, spec.Default, spec.LockToDefault})
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}
