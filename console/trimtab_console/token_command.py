"""`trimtab console token NAME`: makes a token and adds its hash to the token file."""

import argparse
import os
import sys
import time
import tomllib
from pathlib import Path

from trimtab_console.access.tokens import (
    Token,
    TokenRole,
    decode_tokens,
    digest_of,
    load_tokens,
    new_secret,
    to_table,
)
from trimtab_console.configuration import load
from trimtab_process.exit_codes import BAD_USAGE, DONE, FAILED, refuse
from trimtab_process.private_files import PRIVATE_MODE, replace_file
from trimtab_process.toml_files import BadConfiguration
from trimtab_protocol.messages.decode import BadMessage, check_name

DAY_S = 86_400.0
MAX_DAYS = 3_650
FIRST_LINE = "# Tokens of the console, made by `trimtab console token`.  Delete a table to revoke its token.\n"


def run(args: argparse.Namespace) -> int:
    """Print the new token on standard output; the exit code."""
    try:
        name, path = check_name(args.name, "NAME"), load(args.config).tokens
    except (BadConfiguration, BadMessage) as error:
        return refuse("trimtab console token", str(error), BAD_USAGE)
    if path is None:
        expected = "expected the path of a token file"
        return refuse("trimtab console token", f"{args.config}: access.tokens: found nothing, {expected}", BAD_USAGE)
    if args.days is not None and not 1 <= args.days <= MAX_DAYS:
        return refuse("trimtab console token", f"--days: found {args.days}, expected 1 to {MAX_DAYS}", BAD_USAGE)
    secret = new_secret()
    expires = None if args.days is None else float(int(time.time() + args.days * DAY_S))
    token = Token(name=name, role=TokenRole(args.role), digest=digest_of(secret), expires=expires)
    try:
        _add(path, token)
    except (BadConfiguration, OSError) as error:
        return refuse("trimtab console token", str(error), FAILED)
    print(secret)
    print(f"added to {path}; the token itself is stored nowhere", file=sys.stderr)
    return DONE


def _add(path: Path, token: Token) -> None:
    """Raises BadConfiguration, OSError."""
    found = None
    if path.exists():
        load_tokens(path)  # others must not be able to read it, and it must be whole
        found = path.read_bytes()
    before = FIRST_LINE if found is None else found.decode()
    text = f"{before.rstrip()}\n\n{to_table(token)}"
    try:
        decode_tokens(tomllib.loads(text))
    except BadMessage as error:
        raise BadConfiguration(f"{path}: with this token: {error}") from error
    replace_file(path, text.encode(), PRIVATE_MODE, before=found)
    if found is None and os.geteuid() == 0:
        print(f"{path} belongs to root: give it to the console's user (chown), who must read it", file=sys.stderr)
