// load is the one load generator that every system is measured with: clients in a closed loop, one connection each,
// spread over the nodes, values of 200 bytes. It prints one line of JSON.
//
//	load -system etcd -nodes host:port,host:port -clients 64 -batch 100 -warm 1s -measure 5s
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A writer makes `batch` transactions durable with one request and returns when the system has acknowledged all.
type writer interface {
	write(first int64, batch int) error
	close()
}

// systems opens a client's own connection to one node.
var systems = map[string]func(node string) (writer, error){
	"txlog":     openTxLog,
	"etcd":      openEtcd,
	"etcd_http": openGateway,
	"galera":    openGalera,
	"nats":      openNats,
}

type result struct {
	PerS   float64 `json:"per_s"`  // transactions acknowledged
	P50    float64 `json:"p50_ms"` // from a request to its acknowledgement
	P99    float64 `json:"p99_ms"`
	Wrong  int64   `json:"wrong"` // requests that were not acknowledged
	First  string  `json:"first_wrong,omitempty"`
	CpuUs  float64 `json:"cpu_us"`  // the generator's own processor, for each request
	CpuPct float64 `json:"cpu_pct"` // of one core
}

const valueBytes = 200

// value is what one transaction stores; no two are the same.
func value(number int64) string {
	head := fmt.Sprintf("%012d ", number)
	return head + strings.Repeat("x", valueBytes-len(head))
}

func main() {
	system := flag.String("system", "", "txlog, etcd, etcd_http, galera or nats")
	nodes := flag.String("nodes", "", "host:port of each node, with commas")
	clients := flag.Int("clients", 1, "connections, each in a closed loop")
	batch := flag.Int("batch", 1, "transactions in one request")
	first := flag.Int64("first", 0, "the first number; no two runs may share any")
	warm := flag.Duration("warm", time.Second, "before measuring")
	measure := flag.Duration("measure", 5*time.Second, "")
	prepare := flag.Bool("setup", false, "no load: wait until every node serves what clients write to")
	flag.Parse()
	open, known := systems[*system]
	if !known || *nodes == "" {
		flag.Usage()
		os.Exit(64)
	}
	if *prepare {
		if err := setup(*system, strings.Split(*nodes, ",")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	found, err := run(open, strings.Split(*nodes, ","), *clients, *batch, *first, *warm, *measure)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = json.NewEncoder(os.Stdout).Encode(found)
}

func run(open func(string) (writer, error), nodes []string, clients, batch int, first int64, warm, measure time.Duration) (result, error) {
	writers := make([]writer, clients)
	for at := range writers {
		made, err := open(nodes[at%len(nodes)])
		if err != nil {
			return result{}, fmt.Errorf("connecting to %s: %w", nodes[at%len(nodes)], err)
		}
		writers[at] = made
		defer made.close()
	}
	var next, wrong atomic.Int64
	next.Store(first)
	var firstWrong atomic.Pointer[string]
	begin := time.Now().Add(warm)
	end := begin.Add(measure)
	latencies := make([][]time.Duration, clients)
	var all sync.WaitGroup
	var cpu [2]time.Duration
	time.AfterFunc(time.Until(begin), func() { cpu[0] = processor() })
	for at, each := range writers {
		all.Go(func() {
			for {
				sent := time.Now()
				if sent.After(end) {
					return
				}
				err := each.write(next.Add(int64(batch))-int64(batch), batch)
				done := time.Now()
				if err != nil {
					text := err.Error()
					firstWrong.CompareAndSwap(nil, &text)
					if wrong.Add(1) > 1000 {
						return
					}
					continue
				}
				if done.After(begin) && done.Before(end) {
					latencies[at] = append(latencies[at], done.Sub(sent))
				}
			}
		})
	}
	all.Wait()
	cpu[1] = processor()
	every := slices.Concat(latencies...)
	slices.Sort(every)
	found := result{Wrong: wrong.Load()}
	if text := firstWrong.Load(); text != nil {
		found.First = *text
	}
	if n := len(every); n > 0 {
		used := (cpu[1] - cpu[0]).Seconds()
		found.PerS = float64(n*batch) / measure.Seconds()
		found.P50 = every[n/2].Seconds() * 1e3
		found.P99 = every[min(n-1, n*99/100)].Seconds() * 1e3
		found.CpuUs = used * 1e6 / float64(n)
		found.CpuPct = used * 100 / measure.Seconds()
	}
	return found, nil
}

// processor is what this process has used of it so far.
func processor() time.Duration {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
