/** Express and PostgreSQL, no sidecar: a POST with an Idempotency-Key runs once, in any number of processes. */
import { idempotency } from "@semel/client/express";
import { open } from "@semel/client/open";
import express from "express";

// redis://…, postgres://…, mysql://…, sqlite:///…, s3://…, memory://
export const semel = await open(process.env["DATABASE_URL"] ?? "", { environment: process.env["ENVIRONMENT"] ?? "" });
export const charges: unknown[] = [];

export const app = express();
app.use(express.json()); // before the middleware: it compares what was read
app.use(idempotency({ semel, scope: "charges", principal: (request) => request.get("x-user") }));

app.post("/charges", (request, response) => {
  charges.push(request.body);
  response.status(201).json({ charge: `ch_${charges.length}` });
});
