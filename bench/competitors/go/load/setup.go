package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// setup waits until each node takes a client's write; NATS's stream is made here, three times replicated.
func setup(system string, nodes []string) error {
	until := time.Now().Add(60 * time.Second)
	for at, node := range nodes {
		for {
			err := tryOnce(system, node, int64(-1-at))
			if err == nil {
				break
			}
			if time.Now().After(until) {
				return fmt.Errorf("%s: %w", node, err)
			}
			time.Sleep(200 * time.Millisecond)
		}
	}
	return nil
}

func tryOnce(system, node string, number int64) error {
	if system == "nats" {
		if err := makeStream(node); err != nil {
			return err
		}
	}
	opened, err := systems[system](node)
	if err != nil {
		return err
	}
	defer opened.close()
	return opened.write(number, 1)
}

func makeStream(node string) error {
	connection, err := nats.Connect("nats://" + node)
	if err != nil {
		return err
	}
	defer connection.Close()
	stream, err := jetstream.New(connection)
	if err != nil {
		return err
	}
	until, stop := context.WithTimeout(context.Background(), 5*time.Second)
	defer stop()
	_, err = stream.CreateOrUpdateStream(until, jetstream.StreamConfig{
		Name: "bench", Subjects: []string{"bench"}, Replicas: 3, Storage: jetstream.FileStorage,
	})
	return err
}
