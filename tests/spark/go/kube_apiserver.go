// A Kubernetes API server with its etcd in the same process: kube_apiserver FOLDER CLIENT_PORT PEER_PORT FLAG…
package main

import (
	"log"
	"net/url"
	"os"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	config := embed.NewConfig()
	config.Dir = os.Args[1]
	config.LogLevel = "error"
	client, peer := loopback(os.Args[2]), loopback(os.Args[3])
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		log.Fatal(err)
	}
	<-etcd.Server.ReadyNotify()
	server := app.NewAPIServerCommand()
	server.SetArgs(append([]string{"--etcd-servers=" + client.String()}, os.Args[4:]...))
	os.Exit(cli.Run(server))
}

func loopback(port string) url.URL {
	return url.URL{Scheme: "http", Host: "127.0.0.1:" + port}
}
