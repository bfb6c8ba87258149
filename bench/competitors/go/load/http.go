package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
)

// A keepAlive connection speaks HTTP/1.1 without a client library's pool and goroutines: the generator must cost less
// than what it measures.
type keepAlive struct {
	connection net.Conn
	reader     *bufio.Reader
	node       string
	body       bytes.Buffer
	request    bytes.Buffer
}

func openHTTP(node string) (*keepAlive, error) {
	connection, err := net.Dial("tcp", node)
	if err != nil {
		return nil, err
	}
	return &keepAlive{connection: connection, reader: bufio.NewReaderSize(connection, 1<<16), node: node}, nil
}

func (k *keepAlive) close() { _ = k.connection.Close() }

// post sends what is in the body and reads the answer to its end; `count` (if any) must stand in it `times` times.
func (k *keepAlive) post(path, headers string, count string, times int) error {
	k.request.Reset()
	fmt.Fprintf(&k.request, "POST %s HTTP/1.1\r\nHost: %s\r\n%sContent-Length: %d\r\n\r\n", path, k.node, headers, k.body.Len())
	k.request.Write(k.body.Bytes())
	if _, err := k.connection.Write(k.request.Bytes()); err != nil {
		return err
	}
	answer, err := http.ReadResponse(k.reader, nil)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode/100 != 2 || answer.StatusCode == http.StatusAccepted {
		return fmt.Errorf("%s: %s", answer.Status, text)
	}
	if count != "" && bytes.Count(text, []byte(count)) != times {
		return fmt.Errorf("not %d times %s: %.300s", times, count, text)
	}
	return nil
}

// -- TxLog: N-Quads to the repository, as any RDF4J client sends them; a batch as JSON lines

type txlog struct{ *keepAlive }

func openTxLog(node string) (writer, error) {
	opened, err := openHTTP(node)
	return txlog{opened}, err
}

const (
	quadHead = "<http://example.org/%012d> <http://example.org/says> "
	quadEnd  = " <http://example.org/graph> ."
)

func quad(number int64) string {
	head := fmt.Sprintf(quadHead, number)
	return head + `"` + value(number)[:valueBytes-len(head)-len(quadEnd)-3] + `"` + quadEnd
}

func (t txlog) write(first int64, batch int) error {
	t.body.Reset()
	headers := "TxLog-Durability: synced\r\nPrefer: wait=30\r\n"
	if batch == 1 {
		t.body.WriteString(quad(first))
		t.body.WriteByte('\n')
		return t.post("/repositories/bench/statements", headers+"Content-Type: application/n-quads\r\n", "", 0)
	}
	for at := range batch {
		line := bytes.ReplaceAll([]byte(quad(first+int64(at))), []byte(`"`), []byte(`\"`))
		fmt.Fprintf(&t.body, `{"quads":"%s\n"}`+"\n", line)
	}
	return t.post("/txlog/transactions", headers+"Content-Type: application/x-ndjson\r\n", `"txid"`, batch)
}

// -- etcd through its own HTTP/JSON gateway

type gateway struct{ *keepAlive }

func openGateway(node string) (writer, error) {
	opened, err := openHTTP(node)
	return gateway{opened}, err
}

func (g gateway) write(first int64, batch int) error {
	g.body.Reset()
	one := func(number int64) string {
		code := base64.StdEncoding.EncodeToString
		return fmt.Sprintf(`{"key":"%s","value":"%s"}`, code([]byte(key(number))), code([]byte(value(number))))
	}
	if batch == 1 {
		g.body.WriteString(one(first))
		return g.post("/v3/kv/put", "Content-Type: application/json\r\n", `"revision"`, 1)
	}
	g.body.WriteString(`{"success":[`)
	for at := range batch {
		if at > 0 {
			g.body.WriteByte(',')
		}
		fmt.Fprintf(&g.body, `{"request_put":%s}`, one(first+int64(at)))
	}
	g.body.WriteString(`]}`)
	return g.post("/v3/kv/txn", "Content-Type: application/json\r\n", `"response_put"`, batch)
}
