"""Live events over one WebSocket: docs/reference/websocket.md describes the frames."""
