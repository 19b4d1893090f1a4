"""MIDI files read by mido and pretty_midi, as events, and held against ours.

pip install mido==1.3.3 pretty_midi==0.2.11.post0 "setuptools<81"
python bench/midi.py write fixtures/midi                 # small files with what is in them
cargo build --release -p whatwhere-data --example midi
python bench/midi.py compare target/release/examples/midi FILE...

`compare` prints a line for each file: its notes by pretty_midi, the events by mido and by us, and whether they are equal; then
the notes of the file that we write of these events, read by pretty_midi. Parsing is mido's, notes are checked against
pretty_midi's own (which reads tempos of the first track only); pedal, keyboard and events are written here once more, from the paper (Oore et al. 2018), in plain Python.
"""

import bisect
import collections
import itertools
import json
import os
import subprocess
import sys
import tempfile
import warnings
from fractions import Fraction

import mido
import pretty_midi

DRUMS = 9


def seconds(file):
    """A function from ticks to exact seconds."""
    tempos = sorted(
        ((tick, message.tempo) for track in file.tracks for tick, message in absolute(track) if message.type == "set_tempo"),
        key=lambda change: change[0],
    )

    changes = [(0, Fraction(0), 500_000)]
    for tick, tempo in tempos:
        since, time, before = changes[-1]
        changes.append((tick, time + Fraction((tick - since) * before, file.ticks_per_beat * 1_000_000), tempo))
    ticks = [tick for tick, _, _ in changes]

    def at(tick):
        since, time, tempo = changes[bisect.bisect_right(ticks, tick) - 1]
        return time + Fraction((tick - since) * tempo, file.ticks_per_beat * 1_000_000)

    return at


def absolute(track):
    tick = 0
    for message in track:
        tick += message.time
        yield tick, message


def read(path):
    """Notes (start, end, pitch, velocity, channel) and pedals by channel, in ticks."""
    file = mido.MidiFile(path)
    notes, pedals, last = [], collections.defaultdict(list), 0
    for track in file.tracks:
        sounding = collections.defaultdict(list)
        for tick, message in absolute(track):
            if message.type not in ("note_on", "note_off", "control_change") or message.channel == DRUMS:
                continue
            if message.type == "control_change":
                if message.control == 64:
                    pedals[message.channel].append((tick, message.value >= 64))
                    last = max(last, tick)
                continue
            last = max(last, tick)
            key = (message.channel, message.note)
            if message.type == "note_on" and message.velocity > 0:
                sounding[key].append((tick, message.velocity))
                continue
            ended = [begun for begun in sounding[key] if begun[0] != tick]
            kept = [begun for begun in sounding[key] if begun[0] == tick]
            notes += [(start, tick, message.note, velocity, message.channel) for start, velocity in ended]
            sounding[key] = kept if ended else []
    for changes in pedals.values():
        changes.sort(key=lambda change: change[0])
    return file, notes, pedals, last


def held(end, changes, last):
    """When a note that ends under a pedal is over."""
    after = bisect.bisect_right(changes, end, key=lambda change: change[0])
    if after == 0 or not changes[after - 1][1]:
        return end
    return next((tick for tick, is_down in itertools.islice(changes, after, None) if not is_down), max(end, last))


def nearest(time):
    return int(time * 100 + Fraction(1, 2))


def performed(path):
    """Notes in steps of 10 ms on one keyboard: start, end, pitch, bin of velocity."""
    file, notes, pedals, last = read(path)
    at = seconds(file)
    steps = []
    for start, end, pitch, velocity, channel in notes:
        end = held(end, pedals[channel], last)
        first = nearest(at(start))
        steps.append([first, max(nearest(at(end)), first + 1), pitch, (velocity - 1) // 4])
    struck = {}
    for start, end, pitch, velocity in steps:
        before = struck.get((pitch, start), (0, 0))
        struck[pitch, start] = (max(before[0], end), max(before[1], velocity))
    found, following = [], {}
    for (pitch, start), (end, velocity) in sorted(struck.items(), reverse=True):
        found.append((start, min(end, following.get(pitch, end)), pitch, velocity))
        following[pitch] = start
    return sorted(found)


def events(notes):
    keys = [(start, 1, pitch, velocity) for start, _, pitch, velocity in notes]
    keys += [(end, 0, pitch, velocity) for _, end, pitch, velocity in notes]
    words, now, current = [], 0, None
    for step, is_on, pitch, velocity in sorted(keys):
        while now < step:
            shift = min(step - now, 100)
            words.append(f"time_shift_{shift * 10}ms")
            now += shift
        if is_on and velocity != current:
            words.append(f"velocity_{velocity}")
            current = velocity
        words.append(f"note_{'on' if is_on else 'off'}_{pitch}")
    return words


def pretty(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pretty_midi.PrettyMIDI(path)


def checked(path):
    """Whether mido's notes, as they are written, are pretty_midi's."""
    file, notes, _, _ = read(path)
    at = seconds(file)
    ours = sorted((float(at(start)), float(at(end)), pitch, velocity) for start, end, pitch, velocity, _ in notes)
    theirs = sorted(
        (note.start, note.end, note.pitch, note.velocity)
        for instrument in pretty(path).instruments
        if not instrument.is_drum
        for note in instrument.notes
    )
    same = len(ours) == len(theirs)
    # Times agree to a tick's rounding; sorted by them, notes of one time may change places.
    rounded = lambda all: sorted((round(s, 3), round(e, 3), p, v) for s, e, p, v in all)
    close = same and all(
        abs(a[0] - b[0]) < 2e-3 and abs(a[1] - b[1]) < 2e-3 and a[2:] == b[2:] for a, b in zip(rounded(ours), rounded(theirs))
    )
    return len(theirs), close


def write(folder):
    os.makedirs(folder, exist_ok=True)
    for name, make in FILES.items():
        path = os.path.join(folder, name + ".mid")
        make(path)
        count, agree = checked(path)
        words = events(performed(path))
        assert agree, name
        with open(os.path.join(folder, name + ".json"), "w") as out:
            json.dump({"notes": count, "events": words}, out, indent=0)
            out.write("\n")
        print(f"{name}: {count} notes, {len(words)} events")


def messages(track, *timed):
    """Adds messages at ticks."""
    now = 0
    for tick, message in timed:
        track.append(message.copy(time=tick - now))
        now = tick
    track.append(mido.MetaMessage("end_of_track"))
    return track


def on(pitch, velocity=80, channel=0):
    return mido.Message("note_on", note=pitch, velocity=velocity, channel=channel)


def off(pitch, channel=0):
    return mido.Message("note_off", note=pitch, velocity=0, channel=channel)


def pedal(value, channel=0):
    return mido.Message("control_change", control=64, value=value, channel=channel)


def tempo(microseconds):
    return mido.MetaMessage("set_tempo", tempo=microseconds)


def saved(path, *tracks, kind=1, ticks=480):
    file = mido.MidiFile(type=kind, ticks_per_beat=ticks)
    for track in tracks:
        file.tracks.append(messages(mido.MidiTrack(), *track))
    file.save(path)


def format_0(path):
    timed = [(0, tempo(600_000))]
    for i in range(12):
        timed += [(i * 240, on(60 + i, 20 + 8 * i)), (i * 240 + 200, off(60 + i))]
    saved(path, timed, kind=0)


def format_1(path):
    right = [(i * 100, m) for i in range(8) for m in ([off(71 + i)] if i else []) + ([on(72 + i, 90)] if i < 7 else [])]
    left = [(0, on(36, 50, 1)), (350, off(36, 1)), (350, on(43, 55, 1)), (800, off(43, 1))]
    drums = [(0, on(38, 100, 9)), (400, off(38, 9))]
    saved(path, [(0, tempo(500_000))], right, left, drums, ticks=96)


def tempo_changes(path):
    tempos = [(0, tempo(500_000)), (960, tempo(1_000_000)), (1440, tempo(230_000)), (3000, tempo(777_777))]
    notes = [(i * 300 + extra, message) for i in range(14) for extra, message in [(0, on(50 + i, 64)), (250, off(50 + i))]]
    saved(path, tempos, notes)


def sustain(path):
    timed = [
        (0, pedal(127)), (0, on(60)), (240, off(60)),  # held until the pedal comes up
        (300, on(64, 100)), (400, off(64)), (700, on(64, 40)),  # cut where it is struck again
        (960, pedal(63)), (1000, off(64)),
        (1200, on(67)), (1440, pedal(64)), (1500, off(67)), (1500, pedal(100)),  # half a pedal is a pedal
        (1900, pedal(0)), (1950, on(72)), (2000, pedal(90)), (2100, off(72)), (2400, on(50)), (2600, off(50)),  # never up again
    ]
    other = [(0, on(48, 70, 3)), (480, off(48, 3))]  # another channel has no pedal
    saved(path, timed, other)


def overlapping(path):
    timed = [
        (0, on(60, 50)), (240, on(60, 90)), (480, off(60)), (720, off(60)),  # struck again before it ends
        (1000, on(62)), (1200, off(62)), (1200, on(62)), (1400, off(62)),  # end and start at once
        (1500, on(64)), (1700, on(64)), (1700, off(64)), (1900, off(64)),  # the same in the other order
        (2000, on(65)), (2000, off(65)),  # no time at all
        (2100, off(70)), (2200, on(71)),  # an end without a start, a start without an end
    ]
    other = [(120, on(60, 110, 2)), (360, off(60, 2)), (2300, on(90, 1, 2)), (2301, off(90, 2))]
    saved(path, timed, other)


def running_status(path):
    """By hand, because mido writes every status: note-ons of velocity 0 end notes, a meta event ends the running status."""
    body = bytes([
        0, 0x90, 60, 100, 0, 64, 90, 0, 67, 80,  # a chord under one status
        96, 60, 0, 0, 64, 0, 0, 67, 0,  # ended by velocity 0
        0, 0xFF, 0x51, 3, 0x03, 0xD0, 0x90,  # four beats a second
        24, 0x90, 72, 33, 48, 72, 0,
        0, 0xB0, 64, 127, 0, 11, 5, 0, 0x90, 55, 77, 96, 55, 0, 0x81, 0x40, 0xB0, 64, 0,  # controllers share one, too
        0, 0xF0, 3, 1, 2, 0xF7, 0, 0xFF, 0x2F, 0,
    ])  # fmt: skip
    head = b"MThd" + (6).to_bytes(4, "big") + bytes([0, 0, 0, 1, 0, 96])
    with open(path, "wb") as out:
        out.write(head + b"MTrk" + len(body).to_bytes(4, "big") + body)


def by_pretty_midi(path):
    file = pretty_midi.PrettyMIDI(resolution=220, initial_tempo=133)
    piano = pretty_midi.Instrument(program=0)
    for i in range(40):
        start = 0.173 * i + (0.4 if i % 7 == 0 else 0)
        piano.notes.append(pretty_midi.Note(1 + (i * 37) % 127, 30 + (i * 17) % 60, start, start + 0.05 + 0.031 * (i % 9)))
    for i in range(5):
        piano.control_changes += [
            pretty_midi.ControlChange(64, 127, 1.31 * i + 0.22),
            pretty_midi.ControlChange(64, 0, 1.31 * i + 1.07),
        ]
    file.instruments.append(piano)
    file.write(path)


FILES = {
    "format_0": format_0,
    "format_1": format_1,
    "tempo_changes": tempo_changes,
    "sustain": sustain,
    "overlapping": overlapping,
    "running_status": running_status,
    "by_pretty_midi": by_pretty_midi,
}


def compare(command, paths):
    print("file\tpretty_midi notes\tmido agrees\tevents\tour events\tequal\twritten notes\tread back")
    good = 0
    for path in paths:
        name = os.path.basename(path)
        with tempfile.TemporaryDirectory() as folder:
            written = os.path.join(folder, "written.mid")
            ours = subprocess.run([command, path, written], capture_output=True, text=True)
            try:
                count, agree = checked(path)
                expected = performed(path)
            except Exception as error:
                print(f"{name}\tmido: {type(error).__name__}: {error}\tours: {ours.stderr.strip() or 'read'}")
                good += ours.returncode != 0
                continue
            if ours.returncode != 0:
                print(f"{name}\t{count}\tours: {ours.stderr.strip()}")
                good += not expected
                continue
            words, found = events(expected), ours.stdout.split()
            notes = [note for instrument in pretty(written).instruments for note in instrument.notes]
            back = sorted((round(n.start * 100), round(n.end * 100), n.pitch, (n.velocity - 1) // 4) for n in notes)
            same = back == [tuple(note) for note in expected]
            good += agree and words == found and same
            print(f"{name}\t{count}\t{agree}\t{len(words)}\t{len(found)}\t{words == found}\t{len(notes)}\t{same}")
    print(f"{good} of {len(paths)} agree")


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2])
    else:
        compare(sys.argv[2], sys.argv[3:])
