"""The options of commands whose modules need an extra; this package needs only the standard library.

So help and completion work wherever `trimtab` is installed.  `run` names the function of the command as
`module:function`; it is imported when the command is called.
"""
