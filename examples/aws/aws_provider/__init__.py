"""A cloud provider for AWS on boto3. Start reading at `provider`."""
