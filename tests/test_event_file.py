"""TensorBoard's own reader and writer are the oracle of what is written for it."""

import gc
import io
import struct
import subprocess
import sys
import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_training.importing import collector_paused
from rl_training.runtime.event_file import masked_crc32c, write_record


def test_checksum_of_the_standards_test_vector():
    # RFC 3720: 32 bytes of zeros have the CRC32C 0x8A9136AA.
    crc = 0x8A9136AA
    assert masked_crc32c(bytes(32)) == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@given(st.lists(st.binary(max_size=300), max_size=4))
def test_records_are_those_of_tensorboards_writer(records):
    from tensorboard.summary.writer.record_writer import RecordWriter

    ours, theirs = io.BytesIO(), io.BytesIO()
    writer = RecordWriter(theirs)
    for record in records:
        write_record(ours, record)
        writer.write(record)
    assert ours.getvalue() == theirs.getvalue()
    if records:
        assert struct.unpack("<Q", ours.getvalue()[:8]) == (len(records[0]),)


def test_collector_is_paused_during_imports_and_then_as_before():
    for enabled in (True, False):
        (gc.enable if enabled else gc.disable)()
        try:
            with collector_paused():
                assert not gc.isenabled()
            assert gc.isenabled() is enabled
            with pytest.raises(ImportError), collector_paused():
                raise ImportError
            assert gc.isenabled() is enabled
        finally:
            gc.enable()


def test_the_collector_passes_over_torch_while_a_run_lasts_and_over_nothing_afterwards():
    code = """
import gc, weakref, rl_training
class Loop: pass
loop = Loop(); loop.itself = loop; seen = weakref.ref(loop)
class Watch(rl_training.Callback):
    def on_start(self, training): print(gc.get_freeze_count(), gc.isenabled())
agent = rl_training.PPO("CartPole-v1", n_steps=8, batch_size=8, run_dir="run")
agent.learn(64, callback=Watch(), progress_bar=False)
del loop; gc.collect()
print(gc.get_freeze_count(), seen() is None)
"""
    command = [sys.executable, "-c", code]
    with tempfile.TemporaryDirectory() as folder:
        out = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder).stdout
    (during, enabled), (after, freed) = (line.split() for line in out.splitlines()[:2])
    assert int(during) > 100_000
    assert (enabled, int(after), freed) == ("True", 0, "True")
