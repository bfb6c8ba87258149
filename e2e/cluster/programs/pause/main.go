// The first process of a pod, and of a node: it holds the namespaces, takes in orphans, and ends when it is asked to.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	told := make(chan os.Signal, 16)
	signal.Notify(told, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for number := range told {
		if number != syscall.SIGCHLD {
			return
		}
		for {
			if ended, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); ended <= 0 || err != nil {
				break
			}
		}
	}
}
