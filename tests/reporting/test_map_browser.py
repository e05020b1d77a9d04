"""The map and the sheet of an embedding in a browser: by pointer, by key and by touch."""

import re

import numpy as np
import pytest

from jaxatr import openset


def apart(page, least):
    """Points of the map with a minimum distance from all others, with their positions."""
    places = {
        int(point.get_attribute("data-row")): np.array(
            [float(point.get_attribute(name)) for name in "xy"]
        )
        for point in page.locator(".points use").all()
    }
    return {
        row: place
        for row, place in places.items()
        if min(np.hypot(*(place - other)) for at, other in places.items() if at != row) > least
    }


def test_the_chip_that_is_pointed_to_is_shown(opened, seen, embedding):
    run, path = embedding
    with opened(path, viewport={"width": 1280, "height": 1000}) as page:
        rows = list(apart(page, 1.0))[::6]
        assert len(rows) > 8
        tip = page.locator(".tip")
        assert not tip.is_visible()
        for row in rows:
            page.locator(f'.points use[data-row="{row}"]').hover(force=True)
            assert seen(tip.locator(".chip"), run) == row
            kind = "new" if run.labels[row] == openset.UNKNOWN else "trained"
            nearest = run.classes[run.predicted[row]]
            assert tip.locator("span span").all_inner_texts()[:2] == [
                run.thumbnails[row].name,
                f"{kind} class",
            ]
            told = re.search(r"nearest training chip: (.*), distance ([\d.]+)", tip.inner_text())
            assert told[1] == nearest
            assert float(told[2]) == pytest.approx(-run.scores["nearest"][row], rel=6e-3)
            box, figure = tip.bounding_box(), page.locator(".map").bounding_box()
            assert figure["x"] <= box["x"] + 1
            assert box["x"] + box["width"] <= figure["x"] + figure["width"] + 1
        page.mouse.move(2, 2)
        assert not tip.is_visible()


@pytest.mark.slow
def test_the_map_by_keyboard(opened, seen, embedding):
    run, path = embedding
    with opened(path) as page:
        page.locator('a[href="#settings"]').focus()
        tip, visited = page.locator(".tip"), []
        for _ in range(9):
            page.keyboard.press("Tab")
            if tip.is_visible():
                break

        def row():
            active = page.evaluate_handle("document.activeElement").as_element()
            visited.append(int(active.get_attribute("data-row")))
            assert seen(tip.locator(".chip"), run) == visited[-1]
            name = run.thumbnails[visited[-1]].name
            assert active.get_attribute("aria-label").startswith(f"{name}, ")
            return name, float(active.get_attribute("x"))

        assert row()[0] == "a"
        for key in ("ArrowRight", "ArrowRight"):
            before = float(row()[1])
            page.keyboard.press(key)
            assert row()[0] == "a" and row()[1] >= before
        for name in "bcxyy":
            page.keyboard.press("ArrowDown")
            assert row()[0] == name
        page.keyboard.press("ArrowUp")
        assert row()[0] == "x"
        page.keyboard.press("End")
        last = row()[1]
        page.keyboard.press("ArrowRight")
        assert row() == ("x", last)
        page.keyboard.press("Home")
        assert row()[1] < last and len(set(visited)) > 7
        page.keyboard.press("Escape")
        assert not tip.is_visible()
        page.keyboard.press("ArrowRight")
        assert tip.is_visible()
        page.keyboard.press("Tab")  # one stop for the whole map
        assert page.evaluate("document.activeElement.tagName") == "BUTTON"
        assert not tip.is_visible()


@pytest.mark.slow
def test_a_tap_shows_a_chip_until_the_next(opened, seen, embedding):
    run, path = embedding
    size = {"width": 360, "height": 800}
    with opened(path, viewport=size, has_touch=True, is_mobile=True) as page:
        svg, tip = page.locator(".map > svg"), page.locator(".tip")
        svg.scroll_into_view_if_needed()
        scale = svg.evaluate("svg => svg.getScreenCTM().a")
        for row, place in list(apart(page, 3.0).items())[::7]:
            svg.tap(position={"x": place[0] * scale, "y": place[1] * scale}, force=True)
            page.wait_for_timeout(50)
            assert seen(tip.locator(".chip"), run) == row
        svg.tap(position={"x": 3, "y": 3}, force=True)
        assert not tip.is_visible()


@pytest.mark.slow
def test_a_class_can_be_picked_out(opened, embedding):
    run, path = embedding
    with opened(path, viewport={"width": 1280, "height": 1000}) as page:
        chosen = page.locator(".map .legend button", has_text="x")
        chosen.click()
        assert chosen.get_attribute("aria-pressed") == "true"
        faint = page.locator(".points .faint").evaluate_all(
            "groups => groups.map((group) => group.getAttribute('aria-label'))"
        )
        assert faint == ["a", "b", "c", "y"]
        tip, names = page.locator(".tip"), set()
        for row in list(apart(page, 1.0)):
            page.locator(f'.points use[data-row="{row}"]').hover(force=True)
            if tip.is_visible():
                names.add(tip.locator("span span").first.inner_text())
        assert names == {"x"}
        chosen.click()
        assert not page.locator(".points .faint").count()


@pytest.mark.slow
def test_the_sheet_shows_the_recorded_chips(opened, seen, embedding):
    run, path = embedding
    with opened(path) as page:
        searches = page.locator(".searches > li")
        new = run.labels[run.searches.rows] == openset.UNKNOWN
        order = np.argsort(~new, kind="stable")
        assert searches.count() == len(order)
        for number in (0, len(order) - 1):
            place = order[number]
            shown = [seen(chip, run) for chip in searches.nth(number).locator(".chip").all()]
            assert shown == [run.searches.rows[place], *run.searches.neighbours[place]]
