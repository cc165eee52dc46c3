/** NestJS: guards come before a replay, filters' answers are kept, and handlers that answer by themselves. On the fake. */
import type { Server } from "node:http";
import {
  type ArgumentsHost,
  type CallHandler,
  type CanActivate,
  Catch,
  Controller,
  type ExecutionContext,
  HttpCode,
  HttpException,
  Module,
  type NestInterceptor,
  Param,
  Post,
  Req,
  Res,
  UseGuards,
  UseInterceptors,
} from "@nestjs/common";
import { BaseExceptionFilter, NestFactory } from "@nestjs/core";
import type { Response } from "express";
import { type Observable, map } from "rxjs";
import { afterAll, beforeAll, expect, test } from "vitest";
import { currentLease, newKey } from "../src/index.js";
import { IdempotencyInterceptor, type NestRequest, leaseOf } from "../src/nest.js";
import { FakeSemel } from "../src/testing.js";
import { listening } from "./support/servers.js";

type Known = NestRequest & { user?: string };
const fake = new FakeSemel();
const ran: string[] = [];

class Guard implements CanActivate {
  canActivate(context: ExecutionContext): boolean {
    const request = context.switchToHttp().getRequest<Known>();
    const user = request.headers["x-user"]?.toString();
    if (user !== undefined) request.user = user;
    return user !== undefined;
  }
}

/** As many services have it: outside, it wraps whatever comes, a replay too. */
class Envelope implements NestInterceptor {
  intercept(_: ExecutionContext, next: CallHandler): Observable<unknown> {
    return next.handle().pipe(map((data: unknown) => ({ data })));
  }
}

@Controller()
@UseGuards(new Guard())
@UseInterceptors(new Envelope(), new IdempotencyInterceptor<Known>({ semel: fake.semel(), principal: (request) => request.user }))
class Orders {
  @Post("orders/:status")
  @HttpCode(202)
  order(@Param("status") status: string, @Req() request: NestRequest): object {
    ran.push(status);
    if (status !== "202") throw new HttpException({ said: "no" }, Number(status));
    return { run: ran.length, same: leaseOf(request) === currentLease(), fence: currentLease()?.fence };
  }

  @Post("itself")
  itself(@Res() response: Response): void {
    ran.push("itself");
    response.status(203).set("Link", "</a>").send("by itself");
  }
}

@Module({ controllers: [Orders] })
class App {}

let url = "";
const failures: unknown[] = [];
@Catch()
class Seen extends BaseExceptionFilter {
  override catch(failure: unknown, host: ArgumentsHost): void {
    if (!(failure instanceof HttpException)) failures.push(failure);
    super.catch(failure, host);
  }
}

const app = await NestFactory.create(App, { logger: false });
beforeAll(async () => {
  app.useGlobalFilters(new Seen(app.getHttpAdapter()));
  await app.init();
  url = await listening(app.getHttpServer() as Server);
});
afterAll(() => app.close());

const post = (path: string, key: string, user = "ada") =>
  fetch(url + path, { method: "POST", headers: { "Idempotency-Key": key, ...(user ? { "X-User": user } : {}) } });

test("the same answer, with its own status, and a lease for the handler", async () => {
  const key = newKey();
  const [first, again] = [await post("/orders/202", key), await post("/orders/202", key)];
  const body: unknown = await first.json();
  expect(body).toMatchObject({ data: { same: true, fence: 1 } });
  expect([first.status, again.status, await again.json()]).toEqual([202, 202, body]);
  expect(again.headers.get("idempotent-replayed")).toBe("true");
});

test("a guard decides before a replay", async () => {
  const key = newKey();
  expect((await post("/orders/202", key)).status).toBe(202);
  const refused = await post("/orders/202", key, "");
  expect([refused.status, refused.headers.get("idempotent-replayed")]).toEqual([403, null]);
  expect((await post("/orders/202", key, "bob")).headers.get("idempotent-replayed")).toBeNull();
});

test("what a filter makes of an error is kept, or frees the key", async () => {
  for (const [status, replayed] of [
    [422, "true"],
    [500, null],
  ] as const) {
    const key = newKey();
    const [first, again] = [await post(`/orders/${status}`, key), await post(`/orders/${status}`, key)];
    expect([first.status, again.status, again.headers.get("idempotent-replayed")]).toEqual([status, status, replayed]);
    expect(await again.json()).toEqual({ said: "no" });
  }
});

test("a handler that answers by itself is replayed too", async () => {
  const key = newKey();
  const before = ran.length;
  const [first, again] = [await post("/itself", key), await post("/itself", key)];
  expect([first.status, await first.text()]).toEqual([203, "by itself"]);
  expect([again.status, await again.text(), again.headers.get("link"), ran.length - before]).toEqual([203, "by itself", "</a>", 1]);
});

test("another payload is refused, and the handler doesn't run", async () => {
  const key = newKey();
  const before = ran.length;
  await post("/orders/202", key);
  const refused = await post("/orders/202?more=1", key);
  expect([refused.status, ((await refused.json()) as { code: string }).code, ran.length - before]).toEqual([422, "idempotency_conflict", 1]);
});

test("what Nest sends after a replay goes nowhere, and fails nothing", () => {
  expect(failures).toEqual([]);
});

test("on Fastify it says what to use", async () => {
  const context = { getType: () => "http", switchToHttp: () => ({ getRequest: () => ({}), getResponse: () => ({ raw: {} }) }) };
  const interceptor = new IdempotencyInterceptor({ semel: fake.semel() });
  const next = { handle: () => expect.fail("it ran") };
  await expect(interceptor.intercept(context as unknown as ExecutionContext, next)).rejects.toThrow("/fastify");
});
