package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const patience = 30 * time.Second

func key(number int64) string { return fmt.Sprintf("bench/%012d", number) }

// -- etcd: a put, or one transaction of puts

type etcd struct{ client *clientv3.Client }

func openEtcd(node string) (writer, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{node}, DialTimeout: patience})
	return etcd{client}, err
}

func (e etcd) close() { _ = e.client.Close() }

func (e etcd) write(first int64, batch int) error {
	until, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	if batch == 1 {
		_, err := e.client.Put(until, key(first), value(first))
		return err
	}
	puts := make([]clientv3.Op, batch)
	for at := range puts {
		puts[at] = clientv3.OpPut(key(first+int64(at)), value(first+int64(at)))
	}
	_, err := e.client.Txn(until).Then(puts...).Commit()
	return err
}

// -- Galera: an INSERT that commits by itself; a batch is one INSERT of many rows

type galera struct {
	pool   *sql.DB
	single *sql.Conn
	insert *sql.Stmt
}

func openGalera(node string) (writer, error) {
	pool, err := sql.Open("mysql", fmt.Sprintf("root@tcp(%s)/bench", node))
	if err != nil {
		return nil, err
	}
	single, err := pool.Conn(context.Background())
	if err != nil {
		return nil, err
	}
	insert, err := single.PrepareContext(context.Background(), "INSERT INTO entries (id, value) VALUES (?, ?)")
	return &galera{pool, single, insert}, err
}

func (g *galera) close() {
	_ = g.single.Close()
	_ = g.pool.Close()
}

func (g *galera) write(first int64, batch int) error {
	until, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	if batch == 1 {
		_, err := g.insert.ExecContext(until, first, value(first))
		return err
	}
	rows := make([]string, batch)
	for at := range rows {
		rows[at] = fmt.Sprintf("(%d,'%s')", first+int64(at), value(first+int64(at)))
	}
	_, err := g.single.ExecContext(until, "INSERT INTO entries (id, value) VALUES "+strings.Join(rows, ","))
	return err
}

// -- NATS JetStream: a publish and its acknowledgement; a batch is as many at once, each ordered by itself

type natsClient struct {
	connection *nats.Conn
	stream     jetstream.JetStream
}

func openNats(node string) (writer, error) {
	connection, err := nats.Connect("nats://"+node, nats.Timeout(patience))
	if err != nil {
		return nil, err
	}
	stream, err := jetstream.New(connection, jetstream.WithPublishAsyncMaxPending(1000))
	return natsClient{connection, stream}, err
}

func (n natsClient) close() { n.connection.Close() }

func (n natsClient) write(first int64, batch int) error {
	until, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	if batch == 1 {
		_, err := n.stream.Publish(until, "bench", []byte(value(first)))
		return err
	}
	acks := make([]jetstream.PubAckFuture, batch)
	for at := range acks {
		future, err := n.stream.PublishAsync("bench", []byte(value(first+int64(at))))
		if err != nil {
			return err
		}
		acks[at] = future
	}
	for _, future := range acks {
		select {
		case <-future.Ok():
		case err := <-future.Err():
			return err
		case <-until.Done():
			return until.Err()
		}
	}
	return nil
}
