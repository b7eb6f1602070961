"""Pictures to try the detector on: glass vials before a backlight, some of them defective, with exact masks.

A picture is a small optical model: each pixel's ray is bent by an empty or a filled glass cylinder (Snell's
law at each wall) and lands somewhere on a finite lamp panel; where it misses the panel the vial is dark.
Colour is absorption along the path through the liquid. Lengths are in half image widths, x to the right, y
down; the vial's axis is x = 0, and u is x over the radius there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.ndimage import gaussian_filter

from mhpatchcore.runtime.arrays import Floats, Mask

Image8 = npt.NDArray[np.uint8]
Dent = tuple[float, float, float, float, float]  # x, y, half width, half height, depth

DEFECTS = ("particle", "scratch", "low_fill", "cap_dent")

BODY_RADIUS, NECK_RADIUS, CAP_RADIUS, LID_RADIUS = 0.43, 0.2, 0.27, 0.258
LID_TOP, CAP_TOP, CAP_BOTTOM = -0.92, -0.86, -0.62
SHOULDER_TOP, SHOULDER_BOTTOM, BASE, BASE_THICKNESS = -0.52, -0.3, 0.76, 0.05
WALL = 0.93  # inner over outer radius
GLASS_INDEX, LIQUID_INDEX = 1.5, 1.34
PANEL_HALF = 1.18
NORMAL_LEVEL, LOW_LEVEL = (-0.13, 0.03), (0.08, 0.36)  # where the liquid's surface may stand
LIQUID_COLOUR = [0.05, 0.22, 0.75]  # absorption of red, green, blue
LID_COLOUR = [0.05, 0.12, 0.3]
GLASS_LAMPS = [[-0.66, 0.04, 0.3, -0.35, 0.5], [0.66, 0.03, 0.2, -0.3, 0.45], [-0.45, 0.01, 0.1, -0.3, 0.4]]
CAP_LAMPS = [[-0.55, 0.16, 0.3], [-0.05, 0.3, 0.14], [0.5, 0.1, 0.37], [0.88, 0.06, 0.12]]


@dataclass(frozen=True)
class Scene:
    """All that varies between two pictures, but for the sensor's noise."""

    shift: tuple[float, float]
    angle: float
    lamp: float
    tint: Floats  # (3,)
    lamp_slope: tuple[float, float]
    panel_distance: float
    horizon: float
    elevation: float  # of the camera: how open the ellipses of rims and surface are
    level: float
    climb: float  # of the liquid at the wall
    absorption: Floats  # (3,)
    glass_lamps: Floats  # (n, 5), their reflections: u, width, strength, top, bottom
    cap_lamps: Floats  # (n, 3): u, width, strength
    focus: float  # blur, in pixels of a 256 pixel image
    dent: Dent | None = None


def _good_scene(rng: np.random.Generator) -> Scene:
    return Scene(
        shift=(rng.normal(0, 0.018), rng.normal(0, 0.012)),
        angle=math.radians(rng.normal(0, 0.9)),
        lamp=rng.uniform(0.48, 0.68),
        tint=_floats([rng.normal(1, 0.012), 1, rng.normal(0.98, 0.018)]),
        lamp_slope=(rng.normal(0, 0.06), rng.normal(-0.1, 0.05)),
        panel_distance=rng.uniform(1.5, 2.0),
        horizon=rng.normal(0.66, 0.012),
        elevation=rng.uniform(0.09, 0.14),
        level=rng.uniform(*NORMAL_LEVEL),
        climb=rng.uniform(0.012, 0.04),
        absorption=_vary(rng, LIQUID_COLOUR, 0.15) * rng.uniform(0.6, 1.5),
        glass_lamps=_vary(rng, GLASS_LAMPS, [0.13, 0.4, 0.75, 0.4, 0.4]),
        cap_lamps=_vary(rng, CAP_LAMPS, [0.15, 0.25, 0.3]),
        focus=rng.uniform(0.5, 0.8),
    )


def _floats(values: npt.ArrayLike) -> Floats:
    return np.asarray(values, dtype=np.float32)


def _vary(rng: np.random.Generator, values: npt.ArrayLike, share: npt.ArrayLike) -> Floats:
    """Values, each larger or smaller by up to a share of itself."""
    return _floats(values) * _floats(1 + rng.uniform(-1, 1, np.shape(values)) * np.asarray(share))


def _step(distance: Floats, width: float) -> Floats:
    """0 to 1 as a signed distance passes 0, over `width`: an edge without a staircase."""
    coverage: Floats = np.clip(distance / width + 0.5, 0, 1)
    return coverage


def _bump(distance: Floats, width: float) -> Floats:
    scaled = distance / width
    return np.exp(-scaled * scaled)


def _dome(u: Floats) -> Floats:
    """(1 - u²)^½: how far the front of a cylinder stands out at u, or half the path through it."""
    return np.sqrt(np.clip(1 - u * u, 0, 1))


def _image_axes(pixels: int) -> tuple[Floats, Floats]:
    """Pixel centres from -1 to 1: x as (1, W), y as (H, 1)."""
    centres = _floats((np.arange(pixels) + 0.5) * 2 / pixels - 1)
    return centres[None, :], centres[:, None]


def _vial_axes(scene: Scene, pixels: int) -> tuple[Floats, Floats]:
    """x and y (H, W) of the pixels in the vial's own axes."""
    x, y = _image_axes(pixels)
    x, y = x - scene.shift[0], y - scene.shift[1]
    cosine, sine = math.cos(scene.angle), math.sin(scene.angle)
    return cosine * x + sine * y, cosine * y - sine * x


def _bend(u: Floats, index: float) -> Floats:
    """Tangent of the angle by which a vial filled with something of a refractive index bends a ray at u."""
    glass = np.arcsin(u) - np.arcsin(u / GLASS_INDEX) + np.arcsin(u / (GLASS_INDEX * WALL))
    tangent: Floats = np.tan(2 * (glass - np.arcsin(u / (index * WALL))))
    return tangent


def _behind(scene: Scene, x: Floats, y: Floats) -> Floats:
    """Light that comes from behind at a place: the lamp panel and, below the horizon, the table."""
    panel = 0.5 - 0.5 * np.tanh((np.abs(x) - PANEL_HALF) / 0.16)
    slope = 1 + scene.lamp_slope[0] * x + scene.lamp_slope[1] * y - 0.08 * (x * x + y * y)
    table = 0.5 + 0.5 * np.tanh((y - scene.horizon) / 0.035)
    light: Floats = (0.06 + panel * slope) * (1 - table * (0.7 + 0.35 * (y - scene.horizon)))
    return light


def _radius(y: Floats) -> tuple[Floats, Floats]:
    """Outer radius of the glass at y, and its slope."""
    height, growth = SHOULDER_BOTTOM - SHOULDER_TOP, BODY_RADIUS - NECK_RADIUS
    t = np.clip((y - SHOULDER_TOP) / height, 0, 1)
    return NECK_RADIUS + growth * t * t * (3 - 2 * t), growth / height * 6 * t * (1 - t)


def _surface(scene: Scene, level: float, x: Floats, radius: Floats, side: int) -> Floats:
    """y of the meniscus: its front (side 1) or its rear (side -1)."""
    inner = np.clip(x / (WALL * radius), -1, 1)
    squared = inner * inner
    rise: Floats = scene.climb * squared * squared * squared
    return level + side * scene.elevation * radius * _dome(inner) - rise


def _glass(scene: Scene, x: Floats, y: Floats, pixel: float) -> tuple[Floats, Floats]:
    """The vial without its cap: colour (H, W, 3) and coverage (H, W)."""
    radius, slope = _radius(y)
    u = np.clip(x / radius, -1, 1)
    dome = _dome(u)
    from_wall = (radius - np.abs(x)) / np.sqrt(1 + slope * slope)
    from_base = BASE + scene.elevation * BODY_RADIUS * _dome(x / BODY_RADIUS) - y
    coverage = _step(from_wall, pixel) * _step(from_base, pixel) * _step(y - CAP_BOTTOM + 0.1, pixel)

    known_u, reach = np.linspace(0, 0.999, 400), np.sign(x) * scene.panel_distance
    # Inside its wall an empty vial guides light in ways not worth following: it goes on like the inner rim.
    empty_bend, liquid_bend = _bend(np.minimum(known_u, 0.96 * WALL), 1), _bend(known_u, LIQUID_INDEX)
    empty = _behind(scene, x - reach * _floats(np.interp(np.abs(u), known_u, empty_bend)), y)
    filled = _behind(scene, x - reach * _floats(np.interp(np.abs(u), known_u, liquid_bend)), y)
    empty *= 1 - 0.8 * _bump(from_wall - 0.006, 0.008) - 0.6 * _bump(from_wall - 0.034, 0.009)
    front_slope = _radius(y - scene.elevation * radius * dome)[1]
    empty /= 1 + (0.2 + 0.35 * u * u) * front_slope * front_slope

    front = y - _surface(scene, scene.level, x, radius, 1)
    rear = y - _surface(scene, scene.level, x, radius, -1)
    wet = _step(front, pixel)
    light = empty * (0.93 - 0.22 * _step(rear, pixel))
    light += wet * (0.95 * filled - light)
    light *= 1 - 0.62 * _bump(front - 0.3 * scene.climb, 0.004 + 0.5 * scene.climb)  # the meniscus is a prism
    light *= 1 + 0.25 * _bump(front - 1.7 * scene.climb, 0.4 * scene.climb) - 0.3 * _bump(rear, 0.006)
    light *= 1 - 0.55 * _bump(from_base - BASE_THICKNESS, 0.012) - 0.7 * _bump(from_base, 0.016)
    light += 0.3 * _bump(from_base - 0.5 * BASE_THICKNESS, 0.011) * dome * dome
    light *= 0.96 - 0.9 * (1 - dome) ** 5  # less what is reflected, by Schlick's approximation

    path = 2 * radius * dome * wet * _step(from_base - BASE_THICKNESS, 0.02)
    colour = light[..., None] * np.exp(-path[..., None] * scene.absorption)
    for position, width, strength, top, bottom in scene.glass_lamps.tolist():
        strip = strength * _bump(u - position, width) * _step(y - top, 0.1) * _step(bottom - y, 0.14)
        colour += (strip * (1 + 0.5 * wet))[..., None]
    return colour, coverage


def _hollow(dent: Dent, x: Floats, y: Floats) -> Floats:
    """The shape of a dent (H, W): 1 in the centre, 0 from the rim on."""
    centre_x, centre_y, half_width, half_height, _ = dent
    across, down = (x - centre_x) / half_width, (y - centre_y) / half_height
    inside: Floats = np.clip(1 - across * across - down * down, 0, 1)
    return inside * inside


def _cap(scene: Scene, x: Floats, y: Floats, pixel: float) -> tuple[Floats, Floats]:
    """The crimped aluminium cap and its plastic lid: colour (H, W, 3) and coverage (H, W)."""
    u = x / CAP_RADIUS
    dome = _dome(u)
    bent_u, shade, edge = u, np.ones_like(u), CAP_RADIUS - np.abs(x)
    if scene.dent:
        hollow = scene.dent[-1] * _hollow(scene.dent, x, y)
        tilt_y, tilt_x = np.gradient(hollow, pixel)
        bent_u, shade, edge = u + 0.022 * tilt_x, 1 - 0.022 * tilt_y - 0.15 * hollow, edge - 0.045 * hollow
    down = y - scene.elevation * CAP_RADIUS * dome
    metal = _step(edge, pixel) * _step(down - CAP_TOP + 0.02, pixel) * _step(CAP_BOTTOM - down, pixel)
    tone = 0.1 + 0.1 * dome
    for position, width, strength in scene.cap_lamps.tolist():
        tone += strength * _bump(bent_u - position, width)
    crimp = CAP_BOTTOM - down
    tone *= 1 + 0.35 * _bump(crimp - 0.035, 0.012) - 0.5 * _bump(crimp, 0.014)
    tone *= 1 - 0.55 * _bump(crimp - 0.055, 0.007)
    tone *= np.maximum(shade, 0.1) * (1 + 0.4 * _bump(down - CAP_TOP - 0.015, 0.008))

    rim = scene.elevation * LID_RADIUS * _dome(x / LID_RADIUS)
    lid = _step(y - LID_TOP + rim, pixel) * _step(CAP_TOP + rim - y, pixel)
    lid *= _step(LID_RADIUS - np.abs(x), pixel)
    gloss = 0.35 + 0.5 * dome + 0.6 * _bump(u + 0.45, 0.12) + 0.8 * _step(LID_TOP + rim - y, 2 * pixel)
    gloss += 0.5 * _bump(y - LID_TOP - rim, 0.007)
    colour = tone[..., None] * _floats([0.98, 1, 1.02])
    colour += lid[..., None] * (gloss[..., None] * _floats(LID_COLOUR) - colour)
    return colour, np.maximum(metal, lid)


def _optics(scene: Scene, pixels: int) -> Floats:
    """The picture before the lens and the sensor, in linear light, (H, W, 3)."""
    x, y = _vial_axes(scene, pixels)
    shadow = 1 - 0.55 * _bump(x, 0.5) * _bump(y - BASE - 0.06, 0.05)
    picture = np.repeat((_behind(scene, *_image_axes(pixels)) * shadow)[..., None], 3, axis=2)
    # The vial never leaves these columns, nor its cap the upper third.
    columns = slice(pixels // 5, pixels - pixels // 5)
    for part, window in ((_glass, np.s_[:, columns]), (_cap, np.s_[: pixels // 3, columns])):
        colour, coverage = part(scene, x[window], y[window], 2 / pixels)
        picture[window] += coverage[..., None] * (colour - picture[window])
    return picture * (scene.lamp * scene.tint)


def _camera(light: Floats, focus: float, rng: np.random.Generator) -> Image8:
    """What the camera makes of linear light (H, W, 3): blur, shot and read noise, gamma, 8 bits."""
    sigma = focus * light.shape[0] / 256
    light = gaussian_filter(light, sigma=(sigma, sigma, 0), truncate=3)
    light += rng.standard_normal(light.shape, dtype=np.float32) * np.sqrt(1.2e-4 * light + 2e-6)
    encoded: Image8 = np.rint(255 * np.clip(light, 0, 1) ** np.float32(1 / 2.2)).astype(np.uint8)
    return encoded


def _arc(length: float, bend: float, centre: tuple[float, float], angle: float) -> Floats:
    """Close points (n, 2) of a curved line."""
    t = np.linspace(-0.5, 0.5, 200)
    along, across = length * t, length * bend * (4 * t * t - 0.5 + t**3)
    cosine, sine = math.cos(angle), math.sin(angle)
    turned = np.stack([cosine * along - sine * across, sine * along + cosine * across], axis=1)
    return _floats(turned + centre)


def _stroke(x: Floats, y: Floats, line: Floats, half_width: float, pixel: float) -> Floats:
    """Coverage (H, W) of a line (n, 2) of a width."""
    reach = half_width + 2 * pixel
    near = (x > line[:, 0].min() - reach) & (x < line[:, 0].max() + reach)
    near &= (y > line[:, 1].min() - reach) & (y < line[:, 1].max() + reach)
    distances = np.hypot(x[near][:, None] - line[:, 0], y[near][:, None] - line[:, 1])
    coverage = np.zeros_like(x)
    coverage[near] = _step(max(half_width, 0.6 * pixel) - distances.min(axis=1), pixel)
    return coverage


def _thread(rng: np.random.Generator, defect: str, scene: Scene, x: Floats, y: Floats) -> Floats:
    """Coverage (H, W) of a scratch on the glass, or of a fibre or a speck in the liquid."""
    pixel, angle = 2 / x.shape[0], rng.uniform(0, math.pi)
    centre_x = rng.uniform(-0.55, 0.55) * BODY_RADIUS
    in_liquid = (centre_x, rng.uniform(scene.level + 0.18, BASE - 0.1))
    if defect == "scratch":
        on_glass = (centre_x, rng.uniform(-0.1, 0.5))
        line = _arc(rng.uniform(0.18, 0.45), rng.uniform(-0.12, 0.12), on_glass, 0.2 * math.pi + 0.6 * angle)
        return _stroke(x, y, line, rng.uniform(0.004, 0.006), pixel)
    if rng.random() < 0.5:
        fibre = _arc(rng.uniform(0.08, 0.18), rng.uniform(-0.5, 0.5), in_liquid, angle)
        return _stroke(x, y, fibre, rng.uniform(0.005, 0.008), pixel)
    return _stroke(x, y, _arc(rng.uniform(0, 0.02), 0, in_liquid, angle), rng.uniform(0.012, 0.022), pixel)


def _spoil(scene: Scene, defect: str, rng: np.random.Generator, pixels: int) -> tuple[Scene, Floats, Mask]:
    """The scene with a defect, the gain (H, W) it puts on the light, and its mask (H, W)."""
    x, y = _vial_axes(scene, pixels)
    no_gain = np.ones_like(x)
    if defect == "low_fill":
        low, radius = rng.uniform(*LOW_LEVEL), _radius(y)[0]
        missing = (np.abs(x) < WALL * radius) & (y < _surface(scene, low, x, radius, 1))
        missing &= y > _surface(scene, NORMAL_LEVEL[1], x, radius, 1)
        return replace(scene, level=low), no_gain, missing
    if defect == "cap_dent":
        centre = rng.uniform(-0.95, 0.95) * CAP_RADIUS, rng.uniform(CAP_TOP + 0.13, CAP_BOTTOM - 0.02)
        dent = (*centre, rng.uniform(0.06, 0.12), rng.uniform(0.06, 0.11), rng.uniform(0.4, 1.2))
        on_cap = _cap(scene, x, y, 2 / pixels)[1] > 0.5
        return replace(scene, dent=dent), no_gain, on_cap & (_hollow(dent, x, y) > 0.02)
    coverage = _thread(rng, defect, scene, x, y)
    is_dark = rng.random() < (0.75 if defect == "particle" else 0.4)
    gain = rng.uniform(0.2, 0.7) if is_dark else rng.uniform(1.3, 2.0)
    return scene, no_gain + coverage * (gain - 1), coverage > 0.3


def vial_image(seed: int, defect: str | None = None, pixels: int = 256) -> tuple[Image8, Mask]:
    """One picture (H, W, 3) and the mask of its defect (H, W), all False for a good part.

    The vial, the light and the noise come from the seed (0 or more) alone: a defect is put on the same vial.

    >>> image, mask = vial_image(3, "scratch", pixels=128)
    >>> image.shape, image.dtype, mask.shape, bool(mask.any())
    ((128, 128, 3), dtype('uint8'), (128, 128), True)
    """
    scene_rng, noise_rng, defect_rng = (np.random.default_rng([seed, stream]) for stream in range(3))
    scene = _good_scene(scene_rng)
    if defect is None:
        return _camera(_optics(scene, pixels), scene.focus, noise_rng), np.zeros((pixels, pixels), dtype=bool)
    scene, gain, mask = _spoil(scene, defect, defect_rng, pixels)
    return _camera(_optics(scene, pixels) * gain[..., None], scene.focus, noise_rng), mask
