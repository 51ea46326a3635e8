// Package powercut is a test of what the bbolt engine leaves on a disk when the
// power fails.
package powercut
