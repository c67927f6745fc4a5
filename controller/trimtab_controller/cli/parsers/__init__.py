"""The options of commands whose modules need an extra: what is here needs the standard library alone.

So help and completion work wherever `trimtab` is installed.  `run` names the function that carries the command out, as
`module:function`; it is imported when the command is called.
"""
