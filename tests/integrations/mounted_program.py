"""An application for uvicorn that mounts the API."""

from starlette.applications import Starlette
from starlette.routing import Mount

from towpath import App
from towpath.integrations.starlette import lifespan
from towpath.server import Api

app = App(stream_lifetime=600)
api = Api(app)
web = Starlette(routes=[Mount("/queue", api)], lifespan=lifespan(app, worker=False, api=api))
