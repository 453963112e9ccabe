import typer
app = typer.Typer()
@app.callback()
def _a() -> None: ...
