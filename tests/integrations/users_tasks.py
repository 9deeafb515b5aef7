"""The tasks of a user of Django; they are at a module's top, as Django wants them."""

try:
    from django.tasks import task
except ImportError:  # before Django 6.0
    from django_tasks import task

seen: list[object] = []


@task
def double(number: int) -> int:
    return number * 2


@task
async def adouble(number: int) -> int:
    return number * 2


@task(queue_name="mail", priority=20)
def send(to: str, subject: str = "hello") -> str:
    seen.append((to, subject))
    return f"{subject} {to}"


class NoInk(Exception):
    pass


@task
def fail(how: str) -> None:
    raise {"ours": NoInk("empty: black\nand cyan"), "builtin": ValueError("empty")}[how]


@task(takes_context=True)
def tell(context, last: int) -> int:
    seen.append((context.attempt, context.task_result.args))
    if context.attempt < last:
        raise ValueError("again")
    return context.attempt


@task
def write(table: str) -> None:
    from django.db import connection  # noqa: PLC0415 - as it is when the task runs

    with connection.cursor() as cursor:
        cursor.execute(f"insert into {table} values (7)")  # noqa: S608 - our own
