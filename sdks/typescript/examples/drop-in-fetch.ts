/** Other people's clients, with one key for all attempts of a call. */
import { createFetch } from "@semel/client";
import OpenAI from "openai";
import Stripe from "stripe";

const fetch = createFetch();

// Their own retries are off: each would be a new request here, with a new key.
export const openai = (baseURL: string): OpenAI => new OpenAI({ apiKey: "sk-test", baseURL, fetch, maxRetries: 0 });

export const stripe = (host: string, port: number): Stripe =>
  new Stripe("sk_test_1", {
    host, // as their tests have it; leave out these three for the real one
    port,
    protocol: "http",
    httpClient: Stripe.createFetchHttpClient(fetch),
    maxNetworkRetries: 0,
  });
