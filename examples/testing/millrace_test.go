// A file server for each test, with Go: go test millrace_test.go
package millrace_test

import (
	"bufio"
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Listener is an address where clients reach the server.
type Listener struct {
	Host string
	Port int
	URL  string
}

// serve starts Millrace on a free port over a folder, and ends it after the test.
func serve(t *testing.T, folder string) Listener {
	t.Helper()
	server := exec.Command(cmp.Or(os.Getenv("MILLRACE"), "millrace"), "serve", folder, "--ftp", "off",
		"--http", "127.0.0.1:0", "--ready-json", "--quiet")
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Process.Signal(os.Interrupt); server.Wait() })
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var ready struct{ HTTP []Listener }
	if err := json.Unmarshal(line, &ready); err != nil {
		t.Fatal(err)
	}
	return ready.HTTP[0]
}

func TestAFileIsThereByHTTP(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "report.txt"), []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	response, err := http.Get(serve(t, folder).URL + "report.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, _ := io.ReadAll(response.Body); string(body) != "hello" {
		t.Errorf("got %q", body)
	}
}
