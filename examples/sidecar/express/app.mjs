// A service as most are: it charges every time that it is asked to. It knows nothing of keys.
import { setTimeout as pause } from "node:timers/promises";
import express from "express";

const app = express();
const charges = [];

app.post("/charges", express.json(), async (request, response) => {
  await pause(50); // the bank takes its time
  charges.push({
    charge: charges.length + 1,
    amount: request.body.amount,
    client: request.get("x-forwarded-for"),
    host: request.get("host"),
  });
  response.status(201).json(charges.at(-1));
});

app.get("/charges", (_, response) => {
  response.json({ charges: charges.length });
});

app.listen(Number(process.env.PORT ?? 3000), "127.0.0.1");
