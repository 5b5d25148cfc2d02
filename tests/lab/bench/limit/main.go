// Command limit measures what the API server itself can take: it sends the manager's writes for every node (the patch
// of the status, that of the object, the Event) with nothing else to do, over a set number of connections.
//
//	limit -server URL -token TOKEN -ca FILE -plan FILE [-connections 16]
//
// The plan is a JSON list of {name, status, object, event}: bodies as the manager would send them. The resourceVersion
// in the first patch is the planned one; the second takes it from the answer to that, as the manager does.
// It prints {"writes": n, "initialised": seconds, "events": seconds}.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

type work struct {
	Name   string                    `json:"name"`
	Status json.RawMessage           `json:"status"`
	Object map[string]map[string]any `json:"object"`
	Event  json.RawMessage           `json:"event"`
}

type sender struct {
	server, token string
	client        *http.Client
	writes        atomic.Int64
}

func (s *sender) send(method, path, contentType, accept string, body []byte) []byte {
	request, err := http.NewRequest(method, s.server+path, bytes.NewReader(body))
	if err != nil {
		log.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	request.Header.Set("Content-Type", contentType)
	request.Header.Set("Accept", accept)
	response, err := s.client.Do(request)
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		log.Fatal(err)
	}
	if response.StatusCode >= 300 {
		log.Fatalf("%s %s: %d %s", method, path, response.StatusCode, answer)
	}
	s.writes.Add(1)
	return answer
}

func (s *sender) initialise(node work) {
	path := "/api/v1/nodes/" + node.Name
	answer := s.send("PATCH", path+"/status", "application/strategic-merge-patch+json", metadataOnly, node.Status)
	var partial struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(answer, &partial); err != nil {
		log.Fatal(err)
	}
	node.Object["metadata"]["resourceVersion"] = partial.Metadata.ResourceVersion
	body, err := json.Marshal(node.Object)
	if err != nil {
		log.Fatal(err)
	}
	s.send("PATCH", path, "application/merge-patch+json", metadataOnly, body)
}

func main() {
	server := flag.String("server", "", "URL of the API server")
	token := flag.String("token", "", "bearer token")
	ca := flag.String("ca", "", "file with the server's CA")
	plan := flag.String("plan", "", "file with the writes")
	connections := flag.Int("connections", 16, "connections at once")
	flag.Parse()

	pem, err := os.ReadFile(*ca)
	if err != nil {
		log.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	raw, err := os.ReadFile(*plan)
	if err != nil {
		log.Fatal(err)
	}
	var nodes []work
	if err := json.Unmarshal(raw, &nodes); err != nil {
		log.Fatal(err)
	}
	s := &sender{server: *server, token: *token, client: &http.Client{Transport: &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: roots},
		TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{}, // HTTP/1.1: one request a connection
		MaxConnsPerHost:     *connections,
		MaxIdleConnsPerHost: *connections,
	}}}

	todo, events := make(chan work, len(nodes)), make(chan work, len(nodes))
	for _, node := range nodes {
		todo <- node
	}
	close(todo)
	var patching, recording sync.WaitGroup
	start := time.Now()
	for range *connections {
		patching.Go(func() {
			for node := range todo {
				s.initialise(node)
				events <- node
			}
		})
	}
	for range 4 {
		recording.Go(func() {
			for node := range events {
				s.send("POST", "/api/v1/namespaces/default/events", "application/json", metadataOnly, node.Event)
			}
		})
	}
	patching.Wait()
	initialised := time.Since(start).Seconds()
	close(events)
	recording.Wait()
	fmt.Printf("{\"writes\": %d, \"initialised\": %.3f, \"events\": %.3f}\n", s.writes.Load(), initialised, time.Since(start).Seconds())
}
