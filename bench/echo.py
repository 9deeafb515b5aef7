"""What HTTP costs without us: a Starlette application that sends back what it gets."""

import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


async def echo(request: Request) -> Response:
    return Response(await request.body(), media_type="application/json")


def main(port: int) -> None:
    app = Starlette(routes=[Route("/echo", echo, methods=["POST"])])
    uvicorn.run(
        app, port=port, loop="uvloop", http="httptools", access_log=False, log_level="warning"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))
