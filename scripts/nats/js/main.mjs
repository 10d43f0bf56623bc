// Behaviour of nats.js over WebSocket, at one or more servers.
//
//     node main.mjs ws://127.0.0.1:8080...
//
// Publishers are at the first server and subscribers at the last. Prints a line for each behaviour, and exits with 1
// if one fails.
import { headers, wsconnect } from "@nats-io/nats-core";
import { WebSocket } from "ws";

// Browsers and Node 22 have it.
globalThis.WebSocket ??= WebSocket;

const servers = process.argv.slice(2);
const LIMIT_MS = 20_000;
const text = (bytes) => new TextDecoder().decode(bytes);

function check(condition, what) {
  if (!condition) throw new Error(what);
}

async function take(subscription, count) {
  const messages = [];
  for await (const message of subscription) {
    messages.push(message);
    if (messages.length === count) break;
  }
  return messages;
}

/** Publishes until a message arrives: until then, the subscription may be under way to the publisher's server. */
async function waitForPath(publisher, subscriber, subject) {
  const probe = subscriber.subscribe(subject, { max: 1 });
  const arrived = take(probe, 1);
  let done = false;
  arrived.then(() => (done = true));
  while (!done) {
    publisher.publish(subject, "probe");
    await publisher.flush();
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

const behaviours = {
  async "messages of a publisher arrive in order"(publisher, subscriber) {
    await waitForPath(publisher, subscriber, "order.probe");
    const subscription = subscriber.subscribe("order.*.n");
    await subscriber.flush();
    await waitForPath(publisher, subscriber, "order.a.n");
    const taken = take(subscription, 1001);
    for (let number = 0; number < 1000; number++) publisher.publish("order.a.n", `${number}`);
    publisher.publish("order.a.n", "end");
    const messages = (await taken).map((message) => text(message.data)).filter((text) => text !== "probe");
    messages.slice(0, 1000).forEach((text, place) => check(text === `${place}`, `${text} at ${place}`));
    subscription.unsubscribe();
  },
  async "headers pass"(publisher, subscriber) {
    const subscription = subscriber.subscribe("headers", { max: 1 });
    await subscriber.flush();
    await waitForPath(publisher, subscriber, "headers.probe");
    const sent = headers();
    sent.set("Color", "blue");
    const taken = take(subscription, 1);
    publisher.publish("headers", "x", { headers: sent });
    check((await taken)[0].headers.get("Color") === "blue", "the header");
  },
  async "a request has an answer"(publisher, subscriber) {
    subscriber.subscribe("service", { callback: (_, message) => message.respond(`${text(message.data)}!`) });
    await subscriber.flush();
    await waitForPath(publisher, subscriber, "service.probe");
    const answer = await publisher.request("service", "hello", { timeout: 5000 });
    check(text(answer.data) === "hello!", "the answer");
  },
  async "a request without responders fails at once"(publisher) {
    try {
      await publisher.request("nobody", "", { timeout: LIMIT_MS });
    } catch (error) {
      return check(error.name === "NoRespondersError" || /no responders/i.test(error.message), `${error}`);
    }
    throw new Error("it has an answer");
  },
  async "a message of the maximum length passes"(publisher, subscriber) {
    const subscription = subscriber.subscribe("long", { max: 1 });
    await subscriber.flush();
    await waitForPath(publisher, subscriber, "long.probe");
    const taken = take(subscription, 1);
    publisher.publish("long", new Uint8Array(publisher.info.max_payload));
    check((await taken)[0].data.length === publisher.info.max_payload, "the length");
  },
};

const watchdog = setTimeout(() => {
  console.log("failed: it took too long");
  process.exit(1);
}, LIMIT_MS * Object.keys(behaviours).length);
const publisher = await wsconnect({ servers: servers[0] });
const subscriber = await wsconnect({ servers: servers[servers.length - 1] });
let failures = 0;
for (const [name, behaviour] of Object.entries(behaviours)) {
  try {
    await behaviour(publisher, subscriber);
    console.log(`passed: ${name}`);
  } catch (error) {
    failures += 1;
    console.log(`failed: ${name}: ${error}`);
  }
}
await publisher.close();
await subscriber.drain();
clearTimeout(watchdog);
process.exit(failures > 0 ? 1 : 0);
