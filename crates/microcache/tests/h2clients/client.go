// Go's net/http as a client of HTTP/2: go run client.go CERTIFICATE URL
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// What is answered, and over which version.
func ask(client *http.Client, method, url string, content []byte) (string, []byte) {
	request, err := http.NewRequest(method, url, bytes.NewReader(content))
	check(err)
	response, err := client.Do(request)
	check(err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	check(err)
	return fmt.Sprintf("%s %d", response.Proto, response.StatusCode), body
}

func main() {
	certificate, err := os.ReadFile(os.Args[1])
	check(err)
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(certificate)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}, ForceAttemptHTTP2: true}
	client, url := &http.Client{Transport: transport}, os.Args[2]

	var waiting sync.WaitGroup
	answers := make(chan string, 200)
	for number := 0; number < 200; number++ {
		waiting.Add(1)
		go func() {
			defer waiting.Done()
			status, body := ask(client, "GET", url+"/page", nil)
			answers <- fmt.Sprintf("%s %d", status, len(body))
		}()
	}
	waiting.Wait()
	close(answers)
	counts := map[string]int{}
	for answer := range answers {
		counts[answer]++
	}
	for answer, count := range counts {
		fmt.Println("page", answer, "times", count)
	}
	for range []int{1, 2} {
		status, body := ask(client, "GET", url+"/large", nil)
		fmt.Println("large", status, len(body))
	}
	status, body := ask(client, "POST", url+"/upload", bytes.Repeat([]byte("y"), 300_000))
	fmt.Println("upload", status, string(body))
}
