// Publishes, subscribes, requests and drains with nats.go. The arguments are the addresses of servers that
// know each other: publishers use the first, subscribers the last.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	limit = 20 * time.Second
	count = 10_000
)

// check is one behaviour: publisher and subscriber are clients of the first and the last server.
type check struct {
	name string
	run  func(publisher, subscriber *nats.Conn) error
}

var checks = []check{
	{"messages arrive once and in order, through a wildcard", inOrder},
	{"headers and binary payloads arrive unchanged", headers},
	{"a request is answered", request},
	{"a request without responders fails at once", noResponders},
	{"a queue group shares messages", queueGroup},
	{"a subscription ends after its maximum", maximum},
	{"a drained subscription has handled all messages", drain},
	{"a large message arrives", large},
}

func main() {
	failed := 0
	for _, check := range checks {
		err := withClients(os.Args[1], os.Args[len(os.Args)-1], check.run)
		if err != nil {
			failed++
			fmt.Printf("failed: %s: %v\n", check.name, err)
		} else {
			fmt.Printf("passed: %s\n", check.name)
		}
	}
	if failed > 0 {
		os.Exit(1)
	}
}

func withClients(first, last string, run func(publisher, subscriber *nats.Conn) error) error {
	publisher, err := nats.Connect(first, nats.Timeout(limit))
	if err != nil {
		return err
	}
	defer publisher.Close()
	subscriber, err := nats.Connect(last, nats.Timeout(limit))
	if err != nil {
		return err
	}
	defer subscriber.Close()
	return run(publisher, subscriber)
}

// settle returns when messages of the publisher reach the subscriber: other subscriptions that were made
// before have spread, too.
func settle(publisher, subscriber *nats.Conn) error {
	probes, err := subscriber.SubscribeSync(nats.NewInbox())
	if err != nil {
		return err
	}
	defer probes.Unsubscribe()
	for end := time.Now().Add(limit); time.Now().Before(end); {
		if err := publisher.Publish(probes.Subject, nil); err != nil {
			return err
		}
		if _, err := probes.NextMsg(50 * time.Millisecond); err == nil {
			return nil
		}
	}
	return errors.New("no message reached the subscriber")
}

func inOrder(publisher, subscriber *nats.Conn) error {
	messages, err := subscriber.SubscribeSync("order.*.>")
	if err != nil {
		return err
	}
	if err := settle(publisher, subscriber); err != nil {
		return err
	}
	for number := 0; number < count; number++ {
		if err := publisher.Publish("order.a.b.c", []byte(fmt.Sprint(number))); err != nil {
			return err
		}
	}
	for number := 0; number < count; number++ {
		message, err := messages.NextMsg(limit)
		if err != nil {
			return fmt.Errorf("message %d: %w", number, err)
		}
		if string(message.Data) != fmt.Sprint(number) {
			return fmt.Errorf("message %d is %q", number, message.Data)
		}
	}
	return nil
}

func headers(publisher, subscriber *nats.Conn) error {
	messages, err := subscriber.SubscribeSync("headers")
	if err != nil {
		return err
	}
	if err := settle(publisher, subscriber); err != nil {
		return err
	}
	sent := nats.NewMsg("headers")
	sent.Data = []byte("\r\nMSG headers 1 0\r\n\x00\xff")
	sent.Header.Add("Colour", "red")
	sent.Header.Add("Colour", "blue")
	if err := publisher.PublishMsg(sent); err != nil {
		return err
	}
	got, err := messages.NextMsg(limit)
	if err != nil {
		return err
	}
	if string(got.Data) != string(sent.Data) || strings.Join(got.Header.Values("Colour"), " ") != "red blue" {
		return fmt.Errorf("got %q with %v", got.Data, got.Header)
	}
	return nil
}

func request(publisher, subscriber *nats.Conn) error {
	_, err := subscriber.Subscribe("echo", func(message *nats.Msg) { message.Respond(message.Data) })
	if err != nil {
		return err
	}
	if err := settle(publisher, subscriber); err != nil {
		return err
	}
	for number := 0; number < 100; number++ {
		answer, err := publisher.Request("echo", []byte(fmt.Sprint(number)), limit)
		if err != nil {
			return err
		}
		if string(answer.Data) != fmt.Sprint(number) {
			return fmt.Errorf("request %d has the answer %q", number, answer.Data)
		}
	}
	return nil
}

func noResponders(publisher, _ *nats.Conn) error {
	if _, err := publisher.Request("nobody", nil, limit); !errors.Is(err, nats.ErrNoResponders) {
		return fmt.Errorf("got %v", err)
	}
	return nil
}

func queueGroup(publisher, subscriber *nats.Conn) error {
	var counts [2]atomic.Int64
	for worker, client := range []*nats.Conn{publisher, subscriber} {
		worker := worker
		_, err := client.QueueSubscribe("work", "workers", func(*nats.Msg) { counts[worker].Add(1) })
		if err != nil {
			return err
		}
	}
	if err := settle(publisher, subscriber); err != nil {
		return err
	}
	for number := 0; number < count; number++ {
		if err := publisher.Publish("work", nil); err != nil {
			return err
		}
	}
	for end := time.Now().Add(limit); counts[0].Load()+counts[1].Load() < count && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	// Messages that were delivered twice would arrive before this one does.
	if err := settle(publisher, subscriber); err != nil {
		return err
	}
	if counts[0].Load()+counts[1].Load() != count {
		return fmt.Errorf("workers received %d and %d of %d", counts[0].Load(), counts[1].Load(), count)
	}
	return nil
}

func maximum(publisher, subscriber *nats.Conn) error {
	messages, err := subscriber.SubscribeSync("few")
	if err != nil {
		return err
	}
	if err := messages.AutoUnsubscribe(3); err != nil {
		return err
	}
	if err := settle(publisher, subscriber); err != nil {
		return err
	}
	for number := 0; number < 10; number++ {
		if err := publisher.Publish("few", nil); err != nil {
			return err
		}
	}
	if err := settle(publisher, subscriber); err != nil {
		return err
	}
	if delivered, err := messages.Delivered(); err == nil && delivered > 3 {
		return fmt.Errorf("received %d", delivered)
	}
	for number := 0; number < 3; number++ {
		if _, err := messages.NextMsg(limit); err != nil {
			return err
		}
	}
	if _, err := messages.NextMsg(limit); !errors.Is(err, nats.ErrMaxMessages) && !errors.Is(err, nats.ErrBadSubscription) {
		return fmt.Errorf("after the maximum: %v", err)
	}
	return nil
}

func drain(publisher, subscriber *nats.Conn) error {
	var handled atomic.Int64
	_, err := subscriber.Subscribe("drain", func(*nats.Msg) { handled.Add(1) })
	if err != nil {
		return err
	}
	if err := settle(publisher, subscriber); err != nil {
		return err
	}
	for number := 0; number < count; number++ {
		if err := publisher.Publish("drain", nil); err != nil {
			return err
		}
	}
	if err := settle(publisher, subscriber); err != nil {
		return err
	}
	closed := make(chan struct{})
	subscriber.SetClosedHandler(func(*nats.Conn) { close(closed) })
	if err := subscriber.Drain(); err != nil {
		return err
	}
	select {
	case <-closed:
	case <-time.After(limit):
		return errors.New("the connection is not drained")
	}
	if handled.Load() != count {
		return fmt.Errorf("handled %d of %d", handled.Load(), count)
	}
	return nil
}

func large(publisher, subscriber *nats.Conn) error {
	messages, err := subscriber.SubscribeSync("large")
	if err != nil {
		return err
	}
	if err := settle(publisher, subscriber); err != nil {
		return err
	}
	payload := strings.Repeat("0123456789abcdef", int(publisher.MaxPayload()/16))
	if err := publisher.Publish("large", []byte(payload)); err != nil {
		return err
	}
	message, err := messages.NextMsg(limit)
	if err != nil {
		return err
	}
	if string(message.Data) != payload {
		return fmt.Errorf("%d bytes arrived", len(message.Data))
	}
	return nil
}
