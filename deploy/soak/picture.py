"""Draws the rows of a soak as an SVG: memory, descriptors, threads, disk and step time over the steps."""

WIDTH, HEIGHT, LEFT, GAP = 860, 120, 60, 36
COLORS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#8c564b")
ROLES = ("launcher", "controller", "trainer", "rollout")
PANELS = (("resident memory, MB", [f"{role}_resident_mb" for role in ROLES], ROLES),
          ("descriptors", [f"{role}_descriptors" for role in ROLES], ROLES),
          ("threads", [f"{role}_threads" for role in ROLES], ROLES),
          ("disk, MB", ["run_db_mb", "checkpoints_mb", "samples_mb", "logs_mb", "other_mb"],
           ("run.db", "checkpoints", "samples", "logs", "other")),
          ("ms a step, repeated steps included", ["ms_per_step"], ("",)))


def line(rows, column, color, top, largest, last_step):
    points = []
    for row in rows:
        if row.get(column, "") == "":
            continue
        x = LEFT + (WIDTH - LEFT - 10) * float(row["step"]) / last_step
        points.append(f"{x:.1f},{top + HEIGHT * (1 - float(row[column]) / largest):.1f}")
    return f'<polyline fill="none" stroke="{color}" stroke-width="1.2" points="{" ".join(points)}"/>'


def panel(rows, number, last_step):
    title, columns, names = PANELS[number]
    top = 40 + number * (HEIGHT + GAP)
    values = [float(row[column]) for row in rows for column in columns if row.get(column, "") != ""]
    largest = 1.1 * max(values, default=1) or 1
    parts = [f'<rect x="{LEFT}" y="{top}" width="{WIDTH - LEFT - 10}" height="{HEIGHT}" fill="none" stroke="#999"/>',
             f'<text x="{LEFT}" y="{top - 6}">{title}</text>',
             f'<text x="{LEFT - 6}" y="{top + 10}" text-anchor="end">{largest:.3g}</text>',
             f'<text x="{LEFT - 6}" y="{top + HEIGHT}" text-anchor="end">0</text>']
    for i, (column, name) in enumerate(zip(columns, names)):
        parts.append(line(rows, column, COLORS[i], top, largest, last_step))
        if name:
            parts.append(f'<text x="{LEFT + 330 + 90 * i}" y="{top - 6}" fill="{COLORS[i]}">{name}</text>')
    return parts


def draw(rows, path, title):
    last_step = max(float(row["step"]) for row in rows)
    height = 40 + len(PANELS) * (HEIGHT + GAP)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
             'font-family="sans-serif" font-size="11">', f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
             f'<text x="{LEFT}" y="16" font-size="13">{title}</text>']
    for number in range(len(PANELS)):
        parts += panel(rows, number, last_step)
    parts.append(f'<text x="{WIDTH - 10}" y="{height - 16}" text-anchor="end">step {last_step:.0f}</text></svg>')
    path.write_text("\n".join(parts) + "\n")
