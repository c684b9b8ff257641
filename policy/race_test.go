//go:build race

package policy_test

// raceDetector tells that everything takes many times as long.
const raceDetector = true
