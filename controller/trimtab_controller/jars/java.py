"""Finds the Java that runs broker, Ivy and Spark."""

import os
import shutil
from pathlib import Path


class JavaMissingError(Exception):
    """No Java was found; the message names the remedy."""


def java_command() -> str:
    """The `java` to run: from JAVA_HOME if that is set (as in PySpark), else from PATH.  Raises JavaMissingError."""
    home = os.environ.get("JAVA_HOME")
    if home:
        command = Path(home, "bin", "java")
        if not command.is_file():
            raise JavaMissingError(f"JAVA_HOME is {home}, but there is no bin/java in it: correct or unset JAVA_HOME")
        return str(command)
    found = shutil.which("java")
    if found is None:
        raise JavaMissingError("no Java found: install a Java 17 runtime (or 21), or set JAVA_HOME to one")
    return found
