// FTPS with jlaffaye/ftp: a hundred transfers on one control connection, explicit and implicit, TLS 1.2 and 1.3.
//
// Arguments: host, explicit port, implicit port, user, password, CA file, how many, how large.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/jlaffaye/ftp"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func session(args []string, implicit bool, version uint16) {
	authority, err := os.ReadFile(args[5])
	must(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	config := &tls.Config{
		RootCAs:            pool,
		ServerName:         args[0],
		MinVersion:         version,
		MaxVersion:         version,
		ClientSessionCache: tls.NewLRUClientSessionCache(8),
	}
	door, port := ftp.DialWithExplicitTLS(config), args[1]
	if implicit {
		door, port = ftp.DialWithTLS(config), args[2]
	}
	client, err := ftp.Dial(net.JoinHostPort(args[0], port), door, ftp.DialWithTimeout(time.Minute))
	must(err)
	must(client.Login(args[3], args[4]))
	count, err := strconv.Atoi(args[6])
	must(err)
	size, err := strconv.Atoi(args[7])
	must(err)
	for number := 0; number < count/2; number++ {
		contents := bytes.Repeat([]byte{byte(number)}, size)
		must(client.Stor("f", bytes.NewReader(contents)))
		response, err := client.Retr("f")
		must(err)
		back, err := io.ReadAll(response)
		must(err)
		must(response.Close())
		if !bytes.Equal(back, contents) {
			panic("the file came back changed")
		}
	}
	must(client.Delete("f"))
	must(client.Quit())
}

func main() {
	for _, implicit := range []bool{false, true} {
		for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
			session(os.Args[1:], implicit, version)
		}
	}
	fmt.Println("all of it works")
}
