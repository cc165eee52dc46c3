"""Another service's client, over a network that loses replies: each request is done once."""

import os

import httpx2
from openai import OpenAI

from semel import RetryPolicy
from semel.httpx import IdempotencyTransport

transport = IdempotencyTransport(retry=RetryPolicy(total_timeout=1800))  # an answer may take minutes
client = OpenAI(
    base_url=os.environ["OPENAI_URL"],
    api_key="an API key",
    http_client=httpx2.Client(transport=transport, timeout=600),
    max_retries=0,  # the transport retries: a request that the client makes anew would have another key
)


def summary(text: str) -> str | None:
    answer = client.chat.completions.create(model="any", messages=[{"role": "user", "content": text}])
    return answer.choices[0].message.content


if __name__ == "__main__":
    print(summary("once upon a time"))
