package controlplane

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

// The grandchild inherits the child's standard output, so the pipe ends only
// when both are gone.
func TestProcess_DiesWithTheProcessThatStartedIt(t *testing.T) {
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), helperEnv+"=parent")
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	output := bufio.NewReader(stdout)
	if line, err := output.ReadString('\n'); err != nil || line != "started\n" {
		t.Fatalf("child said %q, %v", line, err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, output)
		ended <- err
	}()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("the grandchild still runs 30 s after its parent was killed")
	}
	_ = child.Wait() // It was killed, so there is an error.
}
