"""A relay between a process and a Unix socket that it connects to, which can be a bad network.

preload.c leads the connections of process P to socket S here where a socket "P~S" exists. A relay forwards
everything until it is told to misbehave; connections that are open then misbehave as well.
  cut        both ends are closed; new connections are refused until it ends
  half-open  nothing is forwarded, and nobody is told
  delay      every piece is forwarded 50 ms late
  drop       one piece is not forwarded, and the rest is
  truncate   half of one piece is forwarded, and the connection ends
  flip       one bit in the middle of a piece is another
"""
import select
import socket
import threading
import time

DELAY_SECONDS = 0.05
PIECE = 65536


class Relay:
    """Listens at `path` for connections to `target`."""

    def __init__(self, path, target):
        self.target = str(target)
        self.mode = "pass"
        self.touched = 0  # pieces or connections that the mode changed
        self.ended = False
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(path))
        self.listener.listen(64)
        threading.Thread(target=self.accept, daemon=True).start()

    def misbehave(self, mode):
        self.mode = mode

    def behave(self):
        self.mode = "pass"

    def close(self):
        self.ended = True
        self.listener.close()

    def accept(self):
        while not self.ended:
            try:
                if not select.select([self.listener], [], [], 0.2)[0]:
                    continue
                near = self.listener.accept()[0]
            except (OSError, ValueError):  # close() in between leaves a descriptor of -1
                return
            threading.Thread(target=self.serve, args=(near,), daemon=True).start()

    def serve(self, near):
        far = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            if self.mode == "cut":
                self.touched += 1
                return
            far.connect(self.target)
            self.forward(near, far)
        except (OSError, ValueError):
            pass  # an end is gone: so is the other
        finally:
            near.close()
            far.close()

    def forward(self, near, far):
        while not self.ended:
            if self.mode == "cut":
                self.touched += 1
                return
            if self.mode == "half-open":
                self.touched += 1
                time.sleep(0.02)
                continue
            for source in select.select([near, far], [], [], 0.02)[0]:
                piece = source.recv(PIECE)
                if not piece:
                    return
                sent = self.changed(piece)
                (far if source is near else near).sendall(sent)
                if len(sent) < len(piece) and self.mode == "truncated":
                    self.mode = "pass"
                    return

    def changed(self, piece):
        """What is forwarded for a piece. One piece alone is dropped, truncated or flipped."""
        if self.mode in ("pass", "cut", "half-open", "truncated"):
            return piece
        self.touched += 1
        if self.mode == "delay":
            time.sleep(DELAY_SECONDS)
            return piece
        mode, self.mode = self.mode, "truncated" if self.mode == "truncate" else "pass"
        if mode == "drop":
            return b""
        if mode == "truncate":
            return piece[:len(piece) // 2]
        middle = len(piece) // 2
        return piece[:middle] + bytes([piece[middle] ^ 0x10]) + piece[middle + 1:]
