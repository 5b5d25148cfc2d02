"""SSHKeys: who may log in on the cloud's machines (stage 5, cloud call).

Called by the ssh-key controller through the gateway, with the public keys of a file that an
operator gave it. Nothing is read back: the cloud alone knows which machine has which key.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

__all__ = ["SSHKeys"]


class SSHKeys(ABC):
    """Optional, implemented by the class of the `InstancesV2` or the `InstancesBatch`. `Instances`
    has the method by itself.

    Follows: AddSSHKeyToAllInstances of Instances in k8s.io/cloud-provider cloud.go.
    """

    @abstractmethod
    def add_ssh_key_to_all_instances(self, user: str, key_data: bytes) -> None:
        """Let `user` log in on every instance with a public key: "<type> <base64>", without comment
        or line break.

        Idempotent: called again for what is there already, after a failure, and when machines have
        joined, so it must complete what is half done. Other keys and users stay. Returning means
        that every instance that exists now has the key, or gets it by itself (from metadata of the
        project, say). Never called twice at the same time by one manager. Keep the key out of logs
        and errors; `cloudprovider.helpers.parse_ssh_public_key` gives its fingerprint, and raises
        for what is no public key. Raise `NotImplementedByProvider` where it makes no sense.
        """
