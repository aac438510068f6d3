"""The page's look: a calm gradio theme with RECAP's blue as its accent; `theme.css` beside it styles our own HTML."""

from __future__ import annotations

from pathlib import Path

import gradio as gr

CSS_PATH = Path(__file__).with_name("theme.css")
WEIGHTS = (400, 700)  # gradio 6.31 ships the weight between, 600, with most letters missing

_blue = gr.themes.Color(
    name="recap",
    c50="#eff7fc",
    c100="#d9ecf8",
    c200="#b3d9f0",
    c300="#7fbfe4",
    c400="#3d9fd3",
    c500="#0f85c5",
    c600="#0072b2",
    c700="#005d93",
    c800="#054c77",
    c900="#0a3f62",
    c950="#072a42",
)


def make_theme() -> gr.themes.Base:
    """Base theme, fonts that gradio serves itself (no request leaves the machine), flat blocks."""
    theme = gr.themes.Base(
        primary_hue=_blue,
        secondary_hue=_blue,
        neutral_hue=gr.themes.colors.slate,
        radius_size=gr.themes.sizes.radius_lg,
        font=(gr.themes.LocalFont("IBM Plex Sans", WEIGHTS), "ui-sans-serif", "system-ui", "sans-serif"),
        font_mono=(gr.themes.LocalFont("IBM Plex Mono", WEIGHTS), "ui-monospace", "Consolas", "monospace"),
    )
    return theme.set(
        body_background_fill="*neutral_50",
        body_background_fill_dark="*neutral_950",
        block_background_fill="white",
        block_background_fill_dark="*neutral_900",
        block_border_width="1px",
        block_border_color="*neutral_200",
        block_border_color_dark="*neutral_800",
        block_shadow="none",
        block_label_background_fill="transparent",
        block_label_background_fill_dark="transparent",
        block_label_border_width="0px",
        block_label_text_color="*body_text_color_subdued",
        block_title_text_weight="500",
        button_primary_background_fill="*primary_600",
        button_primary_background_fill_hover="*primary_700",
        button_primary_background_fill_dark="*primary_600",
        button_primary_background_fill_hover_dark="*primary_500",
        button_primary_text_color="white",
        input_background_fill="*neutral_50",
        input_background_fill_dark="*neutral_950",
    )
