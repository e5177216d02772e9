import pytest
from process_pool import Pool


@pytest.fixture(scope="session")
def pair(tmp_path_factory):
    """Two processes."""
    pool = Pool(2, tmp_path_factory.mktemp("pair"))
    yield pool
    pool.close()
