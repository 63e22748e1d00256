//! Which channel names belong to which trunk.
