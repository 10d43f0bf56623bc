module manyflow/scripts/nats

// Debian 12 has Go 1.19; nats.go 1.28 is the last version for it.
go 1.19

require (
	github.com/nats-io/nats.go v1.28.0
	github.com/klauspost/compress v1.16.5 // indirect
	github.com/nats-io/nkeys v0.4.4 // indirect
	github.com/nats-io/nuid v1.0.1 // indirect
	golang.org/x/crypto v0.6.0 // indirect
	golang.org/x/sys v0.5.0 // indirect
	golang.org/x/text v0.7.0 // indirect
)
