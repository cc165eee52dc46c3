/** NestJS: a POST with an Idempotency-Key runs once. */
import { Body, Controller, Get, Module, Post, UnprocessableEntityException } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { Semel, currentLease } from "@semel/client";
import { IdempotencyInterceptor } from "@semel/client/nest";

const semel = new Semel({ url: process.env["SIDECAR_URL"] ?? "", terms: { derive: ["bank"] } });
const charges: unknown[] = [];

@Controller("charges")
class Charges {
  @Post()
  async charge(@Body() order: { order: string; cents: number }): Promise<object> {
    if (order.cents < 0) throw new UnprocessableEntityException("nothing to charge");
    charges.push({ ...order, key: await currentLease()?.deriveKey("bank") });
    if (order.cents === 0) throw new Error("after the charge");
    return { charge: `ch_${charges.length}` };
  }

  @Get()
  all(): unknown[] {
    return charges;
  }
}

@Module({ controllers: [Charges] })
class App {}

export const app = await NestFactory.create(App, { logger: false });
app.useGlobalInterceptors(
  new IdempotencyInterceptor({ semel, scope: "charges", principal: (request) => request.headers["x-user"]?.toString() }),
);
