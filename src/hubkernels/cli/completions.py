"""Completion scripts for four shells. They hold verbs and options themselves: no Python starts when TAB is pressed.

All find the verb in the same way: word by word, a longer path of words that names a verb takes the place of a shorter.
A verb is spelled with a blank before each word, `` bench run``; the program itself is the empty one.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence

from hubkernels.cli.tree import Option, Verb

PROGRAMS = ("kernel-builder", "hubkernels")

_FOLDERS = frozenset({"FOLDER", "PATH"})
"""Values that a shell can complete by itself, by what stands for them in the reference."""


def script(shell: str, verbs: Iterable[Verb]) -> str:
    """The script for one of `SHELLS`."""
    return "\n".join((*SHELLS[shell]([verb for verb in verbs if not verb.hidden]), ""))


def _spelled(verb: Verb) -> str:
    return "".join(f" {word}" for word in verb.words)


def _below(verb: Verb, verbs: Sequence[Verb]) -> list[Verb]:
    return [other for other in verbs if other.words[:-1] == verb.words and other.words]


def _candidates(verb: Verb, verbs: Sequence[Verb]) -> list[tuple[str, str]]:
    """What may be typed next, with what it means: verbs below, known words, then options."""
    below = [(other.words[-1], _short(other.text)) for other in _below(verb, verbs)]
    below += [(word, word) for word in verb.known]
    return below + [(name, _short(option.text)) for option in verb.options for name in option.names]


def _short(text: str) -> str:
    """The first sentence."""
    return " ".join(text.partition("\n\n")[0].partition(". ")[0].split()).rstrip(".")


def _bash(verbs: Sequence[Verb]) -> list[str]:
    known = "|".join(shlex.quote(_spelled(verb)) for verb in verbs if verb.words)
    words = {_spelled(verb): " ".join(name for name, _ in _candidates(verb, verbs)) for verb in verbs}
    return [
        "_kernel_builder() {",
        "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb= i",
        "  for ((i = 1; i < COMP_CWORD; i++)); do",
        f'    case "$verb ${{COMP_WORDS[i]}}" in {known}) verb="$verb ${{COMP_WORDS[i]}}" ;; esac',
        "  done",
        "  COMPREPLY=()",
        '  case "$verb $prev" in',
        *(
            f"    {_bash_pattern(verb, option)}) {_bash_value(option)} return ;;"
            for verb in verbs
            for option in verb.options
            if option.value
        ),
        "  esac",
        "  case $verb in",
        *(
            f'    {shlex.quote(verb)}) mapfile -t COMPREPLY < <(compgen -W {shlex.quote(names)} -- "$cur") ;;'
            for verb, names in words.items()
        ),
        "  esac",
        '  [[ -z $verb || $cur == -* ]] || mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -d -- "$cur")',
        "}",
        f"complete -o filenames -F _kernel_builder {' '.join(PROGRAMS)}",
    ]


def _bash_pattern(verb: Verb, option: Option) -> str:
    return "|".join(shlex.quote(f"{_spelled(verb)} {name}") for name in option.names)


def _bash_value(option: Option) -> str:
    if option.choices:
        return f'mapfile -t COMPREPLY < <(compgen -W {shlex.quote(" ".join(option.choices))} -- "$cur");'
    return 'mapfile -t COMPREPLY < <(compgen -d -- "$cur");' if option.value in _FOLDERS else ""


def _zsh(verbs: Sequence[Verb]) -> list[str]:
    known = "|".join(shlex.quote(_spelled(verb)) for verb in verbs if verb.words)
    lines = [
        f"#compdef {' '.join(PROGRAMS)}",
        "_kernel_builder() {",
        "  local verb= depth=0 i",
        "  for ((i = 2; i < CURRENT; i++)); do",
        f'    case "$verb ${{words[i]}}" in ({known}) verb="$verb ${{words[i]}}"; depth=$((i - 1)) ;; esac',
        "  done",
        "  shift $depth words",
        "  ((CURRENT -= depth))",
        "  case $verb in",
    ]
    for verb in verbs:
        specs = [_zsh_option(option) for option in verb.options for option in _each_name(option)]
        below = " ".join(map(_zsh_verb, _below(verb, verbs)))
        known = f"*:word:({' '.join(verb.known)})" if verb.known else "*:folder:_files -/"
        specs.append(f"1:verb:(({below}))" if below else known)
        lines.append(f"    ({shlex.quote(_spelled(verb))}) _arguments {' '.join(map(shlex.quote, specs))} ;;")
    return [*lines, "  esac", "}", f"compdef _kernel_builder {' '.join(PROGRAMS)}"]


def _each_name(option: Option) -> Iterable[Option]:
    return (Option((name,), option.value, option.choices, option.text, None) for name in option.names)


def _zsh_option(option: Option) -> str:
    (name,) = option.names
    spec = f"*{name}[{_zsh_text(_short(option.text))}]"
    if option.value is None:
        return spec
    action = f"({' '.join(option.choices)})" if option.choices else "_files -/" if option.value in _FOLDERS else " "
    return f"{spec}:{_zsh_text(option.value)}:{action}"


def _zsh_verb(verb: Verb) -> str:
    return f"{verb.words[-1]}\\:{shlex.quote(_zsh_text(_short(verb.text)))}"


def _zsh_text(text: str) -> str:
    return text.translate({ord(mark): f"\\{mark}" for mark in "[]:"})


def _fish(verbs: Sequence[Verb]) -> list[str]:
    known = " ".join(_fish_quote(_spelled(verb)) for verb in verbs if verb.words)
    lines = [
        "function __kernel_builder_at",
        "    set -l verb ''",
        "    for word in (commandline -opc)[2..-1]",
        f'        contains -- "$verb $word" {known}; and set verb "$verb $word"',
        "    end",
        '    test "$verb" = "$argv[1]"',
        "end",
    ]
    for program in PROGRAMS:
        for verb in verbs:
            start = f"complete -c {program} -n '__kernel_builder_at \"{_spelled(verb)}\"'"
            lines += [f"{start} -f"] if _below(verb, verbs) else []
            lines += [
                f"{start} -a {other.words[-1]} -d {_fish_quote(_short(other.text))}" for other in _below(verb, verbs)
            ]
            lines += [f"{start} -a {word}" for word in verb.known]
            lines += [f"{start} {_fish_option(option)}" for option in verb.options]
    return lines


def _fish_option(option: Option) -> str:
    names = (f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
    value = "" if option.value is None else " -r" if option.value in _FOLDERS else " -x"
    choices = f" -a {_fish_quote(' '.join(option.choices))}" if option.choices else ""
    return f"{' '.join(names)}{value}{choices} -d {_fish_quote(_short(option.text))}"


def _fish_quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _powershell(verbs: Sequence[Verb]) -> list[str]:
    known = ", ".join(_powershell_quote(_spelled(verb)) for verb in verbs if verb.words)
    programs = ", ".join(map(_powershell_quote, PROGRAMS))
    lines = [
        f"Register-ArgumentCompleter -Native -CommandName {programs} -ScriptBlock {{",
        "    param($wordToComplete, $commandAst, $cursorPosition)",
        "    $verb = ''",
        "    foreach ($element in $commandAst.CommandElements | Select-Object -Skip 1) {",
        "        if ($element.Extent.EndOffset -ge $cursorPosition) { break }",
        f'        if (@({known}) -ccontains "$verb $element") {{ $verb = "$verb $element" }}',
        "    }",
        "    $found = switch -CaseSensitive ($verb) {",
    ]
    for verb in verbs:
        rows = (f"@({_powershell_quote(n)}, {_powershell_quote(text)})" for n, text in _candidates(verb, verbs))
        lines.append(f"        {_powershell_quote(_spelled(verb))} {{ {', '.join(rows)} }}")
    return [
        *lines,
        "    }",
        "    $found | Where-Object { $_[0].StartsWith($wordToComplete) } | ForEach-Object {",
        "        [System.Management.Automation.CompletionResult]::new($_[0], $_[0], 'ParameterValue', $_[1])",
        "    }",
        "}",
    ]


def _powershell_quote(text: str) -> str:
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


SHELLS: Mapping[str, Callable[[Sequence[Verb]], list[str]]] = {
    "bash": _bash,
    "zsh": _zsh,
    "fish": _fish,
    "powershell": _powershell,
}
