// Command etcd is the store behind the test suite's API server: upstream's own, built from the public Go modules.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
