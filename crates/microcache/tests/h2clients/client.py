"""httpx as a client of HTTP/2: client.py CERTIFICATE URL"""

import asyncio
import collections
import ssl
import sys

import httpx


def said(answer):
    return f"{answer.http_version.replace('HTTP/2', 'HTTP/2.0')} {answer.status_code}"


async def main(certificate, url):
    trusting = ssl.create_default_context(cafile=certificate)
    async with httpx.AsyncClient(http2=True, verify=trusting, trust_env=False) as client:
        answers = await asyncio.gather(*(client.get(f"{url}/page") for _ in range(200)))
        for answer, count in collections.Counter(f"{said(answer)} {len(answer.content)}" for answer in answers).items():
            print(f"page {answer} times {count}")
        for _ in range(2):
            answer = await client.get(f"{url}/large")
            print(f"large {said(answer)} {len(answer.content)}")
        answer = await client.post(f"{url}/upload", content=b"y" * 300_000)
        print(f"upload {said(answer)} {answer.text}")


asyncio.run(main(*sys.argv[1:]))
