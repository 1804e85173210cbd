"""Corrupted pairs in words."""

import bench.data
from bench.data.noise.shown import noise_lines
from bench.data.noise.shuffled import shuffled_captions


def test_lines_name_rows_and_donors():
    pairs = bench.data.load_dataset("emoji/iid", 32)
    manifest = shuffled_captions(pairs, 0.3, 0)
    first, *lines = noise_lines(pairs, manifest, 5)
    assert first.startswith("shuffled_captions, rate 0.3, seed 0: 140 of 466 pairs of emoji/iid")
    assert f"{manifest.realised_rate:.1%} have no correct caption left" in first
    assert len(lines) == 5
    key, donor = lines[2].split()[0], lines[2].split()[-1]
    place = manifest.keys.index(key)
    assert manifest.donor_keys[place] == donor
    assert repr(pairs.captions(int(manifest.donors[place]))[0]) in lines[2]


def test_clean_data_has_a_summary_alone():
    pairs = bench.data.load_dataset("emoji/iid", 32)
    (line,) = noise_lines(pairs, shuffled_captions(pairs, 0.0, 0), 5)
    assert "0 of 466 pairs" in line
