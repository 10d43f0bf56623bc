// Two clients of the package `spread`: one sends 20 messages to a group, the other prints them.
const spread = require("spread");

const port = Number(process.argv[2]);
const reader = spread.createConnection("reader", port, "127.0.0.1");
let count = 0;
reader.on("logined", () => {
  reader.join("news");
  // The package tells nobody of views. The sender joins another group, so that its own join comes
  // after that of the reader.
  setTimeout(() => {
    const sender = spread.createConnection("sender", port, "127.0.0.1");
    sender.on("logined", () => {
      // The package can show a message only when the next one arrives.
      for (let number = 0; number <= 20; number++) sender.send(`message ${number}`, "news");
    });
  }, 500);
});
reader.on("message", (group, text) => {
  console.log(`${group}: ${text}`);
  count += 1;
  if (count === 20) process.exit(0);
});
